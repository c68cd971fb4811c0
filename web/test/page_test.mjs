// The page in headless Chromium: node page_test.mjs PROGRAM CHROMIUM [SHARED_DATA]
//
// Writes runs, makes pages of them and compares the data of the charts with the files.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import {join} from 'node:path';
import {columns, count, folder, gradient, main, makePage, program, seen, sharedData, test, writeLog, writeRun,
  writeSamples, xRange} from './harness.mjs';

const cardNames = (page) => page.locator('.card').evaluateAll((cards) => cards.map((card) => card.dataset.layer));

function near(values, expected) {
  assert.equal(values.length, expected.length);
  values.forEach((value, k) =>
    assert.ok(Math.abs(value - expected[k]) <= 1e-6 * Math.abs(expected[k]), `${k}: ${value}`));
}

main(async () => {
  const run = writeRun('run', 40);
  const small = makePage('small', run);

  await test('every layer has a card with its samples and constants', small, async (page) => {
    assert.equal(await page.locator('.card').count(), 8);
    const card = page.locator('.card[data-layer="blocks.1.t2.weight"]');
    assert.equal(await card.getAttribute('data-samples'), '20');
    assert.match(await card.innerText(), /L0 0 · L1 7\n/);
  });
  await test('an opened layer shows the values of the file', small, async (page) => {
    await page.locator('.card[data-layer="blocks.0.t1.weight"]').click();
    const [step, lhat, line] = await columns(page, 'layer-0-steps');
    assert.deepEqual(step, count(20, (k) => k * 50));
    assert.deepEqual(lhat, count(20, (k) => 2 * gradient(k, 1)));
    near(line, lhat);
    assert.match(await page.locator('dialog h3').innerText(), /L0 0, L1 2, relative error/);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('dialog[open]').count(), 0);
  });
  await test('losses over steps, tokens and seconds', small, async (page) => {
    const [step, loss, val] = await columns(page, 'loss');
    assert.deepEqual(step, count(40, (k) => k + 1));
    near(loss, count(40, (k) => 10 / (k + 1)));
    assert.deepEqual(val.filter((value) => value != null), [1.2, 0.6, 0.4, 0.3]);
    assert.equal(await page.locator('[data-chart=loss]').getAttribute('data-points'), '40,4');
    await page.selectOption('#loss select >> nth=0', 'seconds');
    assert.deepEqual((await columns(page, 'loss'))[0], count(40, (k) => (k + 1) / 4));
    await page.selectOption('#loss select >> nth=0', 'tokens');
    assert.deepEqual((await columns(page, 'loss'))[0], count(40, (k) => (k + 1) * 64));
    await page.selectOption('#loss select >> nth=1', 'log');
    assert.equal(await page.evaluate(() => globalThis.gluonCharts.loss.scales.log.distr), 3);
  });
  const far = (name, first, gap) => writeLog(name, count(5, (k) => [first + BigInt(k) * gap, k, 5 - k, '', k + 1]));
  const ranges = [['near-2-63', 2n ** 63n - 5n, 1n], ['ulps', 10n ** 16n, 2n], ['wide', 0n, 2n ** 60n]];
  for (const [name, first, gap] of ranges) {
    await test(`steps beyond 2^53: ${name}`, makePage(name, far(name, first, gap)), async (page) => {
      assert.ok((await columns(page, 'loss'))[1].some((value) => value === 5));
      await page.locator('[data-chart=loss]').press('+');
      await page.locator('[data-chart=loss]').press('0');
    });
  }
  await test('radii, alignment and the share of time over the run', small, async (page) => {
    const [step, head, hidden] = await columns(page, 'radius');
    assert.deepEqual(step, count(40, (k) => k + 1));
    near(head, count(40, (k) => 1 / (k + 1)));
    near(hidden, count(40, () => 0.1));
    const [, share] = await columns(page, 'optimizer');
    near(share, count(40, (k) => 0.1 + ((k + 1) % 3) / 10));
    const [sampled, alignment] = await columns(page, 'alignment');
    assert.deepEqual(sampled, count(20, (k) => k * 50));
    near(alignment, count(20, (k) => (k + 3.5) / 100)); // the median over 8 layers
    const [, used, predicted] = await columns(page, 'predicted');
    near(used, count(20, () => 0.1));
    near(predicted, count(20, () => (1 / 4 + 1 / 5) / 2)); // the median of 1 / L1
  });
  await test('predicted and used radii', small, async (page) => {
    assert.match(await page.locator('#radii tbody').innerText(), /^hidden\s+0\.225\s+0\.1\s+2\.25\s+8\s/);
  });
  await test('filter and sort', small, async (page) => {
    await page.fill('#filter', 't3');
    assert.deepEqual(await cardNames(page), ['blocks.0.t3.weight', 'blocks.1.t3.weight']);
    await page.fill('#filter', '');
    await page.locator('#layers').getByLabel('sort by').selectOption('L1');
    assert.equal((await cardNames(page))[0], 'blocks.1.t3.weight');
  });
  await test('zoom by keys and by dragging', small, async (page) => {
    const before = await xRange(page, 'blocks');
    await page.locator('[data-chart=blocks]').focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('+');
    const close = await xRange(page, 'blocks');
    assert.ok(close[1] - close[0] < before[1] - before[0]);
    await page.keyboard.press('0');
    assert.deepEqual(await xRange(page, 'blocks'), before);
    const box = await page.locator('[data-chart=blocks] .u-over').boundingBox();
    await page.mouse.move(box.x + 100, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 60, {steps: 4});
    await page.mouse.up();
    const dragged = await xRange(page, 'blocks');
    assert.ok(dragged[1] - dragged[0] < before[1] - before[0]);
    await page.mouse.dblclick(box.x + 200, box.y + 50);
    assert.deepEqual(await xRange(page, 'blocks'), before);
  });
  await test('the pointer shows values', small, async (page) => {
    await seen(page, 'blocks');
    await page.locator('[data-chart=blocks] .u-over').hover({position: {x: 3, y: 40}});
    // The first sample of t0: 1 in block 0, 5 x 5 in block 1, which is nearer to the pointer.
    assert.equal(await page.locator('[data-chart=blocks] .readout').innerText(), 'step 0\n\tB.1\t\t25\t\n\n\tB.0\t\t1\t');
  });
  await test('dark and light', small, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const before = await ground();
    await page.click('#theme');
    assert.notEqual(await ground(), before);
  });
  await test('a group has one colour everywhere', small, async (page) => {
    const dots = await page.locator('.dot').evaluateAll((all) => all.map((dot) => getComputedStyle(dot).backgroundColor));
    assert.ok(dots.length >= 10, `${dots.length} dots`); // 8 cards, their legend, the table of radii
    assert.equal(new Set(dots).size, 1); // all are of hidden
    await seen(page, 'radius');
    const line = await page.locator('[data-place=radius] .entry', {hasText: 'hidden'}).locator('svg')
      .evaluate((sample) => getComputedStyle(sample).stroke);
    assert.equal(line, dots[0]);
  });
  await test('layers are in the order of the network', small, async (page) => {
    assert.deepEqual(await cardNames(page),
      count(8, (i) => `blocks.${i >> 2}.t${i % 4}.weight`));
  });
  await test('printing draws the charts that were never near the window', small, async (page) => {
    assert.equal(await page.evaluate(() => 'optimizer' in globalThis.gluonCharts), false);
    await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
    for (const chart of ['loss', 'blocks', 'radius', 'optimizer']) {
      assert.ok(await page.evaluate((id) => id in globalThis.gluonCharts, chart), chart);
    }
  });
  await test('printing hides the controls', small, async (page) => {
    await page.emulateMedia({media: 'print'});
    assert.equal(await page.locator('nav, #theme, .controls').filter({visible: true}).count(), 0);
    assert.equal(await page.locator('.card').filter({visible: true}).count(), 8);
  });
  await test('a narrow window has no horizontal scrolling', small, async (page) => {
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  }, {width: 390, height: 800});

  await test('several runs side by side', makePage('two', run, writeRun('other', 20)), async (page) => {
    assert.equal((await columns(page, 'loss')).length, 5);
    await page.locator('#runs .toggle').first().click();
    assert.equal((await columns(page, 'loss')).length, 3);
    assert.equal(await page.locator('#norms tbody tr').count(), 2);
    await page.locator('.card').first().click();
    assert.equal(await page.locator('dialog [data-chart]').count(), 4);
  });

  // The goal is 3 seconds; on a busy machine only ten times that is a failure.
  const large = join(folder, 'large.csv');
  writeSamples(large, 500, 200);
  await test('500 layers x 200 samples', makePage('large', large), async (page, ms) => {
    assert.equal(await page.locator('.card').count(), 500);
    assert.equal(await page.locator('.card[data-samples="200"]').count(), 500);
    assert.equal((await columns(page, 'blocks'))[0].length, 200);
    console.log(`500 layers x 200 samples: shown after ${Math.round(ms)} ms (goal: 3000)`);
    assert.ok(ms < 30000);
  });

  const paper = sharedData ? join(sharedData, 'paper-logs/nanogpt-unscion.txt') : '';
  if (!existsSync(paper)) {
    console.log("skipped: the paper's log does not exist");
    return;
  }
  const fits = JSON.parse(execFileSync(program, ['fit', paper, '--json'], {encoding: 'utf8'}));
  await test("the paper's log: 73 layers with the constants of gluon fit", makePage('paper', paper), async (page) => {
    assert.equal(await page.locator('.card').count(), 73);
    assert.equal(fits.length, 73);
    for (const fit of fits) {
      const shown = await page.locator(`.card[data-layer="${fit.layer}"]`).innerText();
      const [, l0, l1] = /L0 (\S+) · L1 (\S+)/.exec(shown);
      assert.ok(Math.abs(l0 - fit.L0) <= 5e-3 * fit.L0, `${fit.layer}: L0 ${l0}, not ${fit.L0}`);
      assert.ok(Math.abs(l1 - fit.L1) <= 5e-4 * fit.L1, `${fit.layer}: L1 ${l1}, not ${fit.L1}`);
    }
  });
});
