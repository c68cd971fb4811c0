// The charts: ranges, ticks, smoothing, values at the pointer, names: node charts_test.mjs PROGRAM CHROMIUM [SHARED_DATA]
import assert from 'node:assert/strict';
import {existsSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {assertFits, columns, count, kViews, main, makePage, seen, sharedData, test, writeLog, writeRun}
  from './harness.mjs';

const scale = (page, chart, name) => page.evaluate(([id, key]) => {
  const {min, max} = globalThis.gluonCharts[id].scales[key];
  return [min, max];
}, [chart, name]);
const ticks = (page, chart) => page.evaluate((id) => globalThis.gluonCharts[id].axes[0]._splits, chart);
const setSlider = (page, label, value) => page.getByLabel(label).first().fill(String(value));

// Step, tokens, loss, val, seconds; an evaluation at every fifth step.
const rows = (steps, loss) => count(steps, (k) => [k + 1, 64 * (k + 1), loss(k), k % 5 === 4 ? 2 : '', k + 1]);

main(async () => {
  const spiky = makePage('spiky', writeLog('spiky', rows(40, (k) => (k === 20 ? 1e6 : 3 - k / 40))));

  await test('one outlier does not flatten the rest, and a button shows it', spiky, async (page) => {
    await seen(page, 'loss');
    const [low, high] = await scale(page, 'loss', 'y');
    assert.ok(low > 1 && high < 5, `${low} to ${high}`);
    const button = page.locator('#loss .all');
    assert.equal(await button.innerText(), 'Show everything: 1 value is outside');
    await button.click();
    assert.ok((await scale(page, 'loss', 'y'))[1] > 1e6);
    assert.equal(await button.innerText(), 'Leave out outliers');
    await button.click();
    assert.ok((await scale(page, 'loss', 'y'))[1] < 5);
  });
  await test('smoothing keeps a constant, damps a spike and leaves validation alone', spiky, async (page) => {
    const [, raw, val] = await columns(page, 'loss');
    await setSlider(page, 'smoothing of training', 0.9);
    const [, behind, training, after] = await columns(page, 'loss');
    assert.deepEqual(behind, raw);
    assert.deepEqual(after, val);
    assert.equal(training[0], raw[0]);
    assert.ok(training[20] > 1e4 && training[20] < 2e5, `${training[20]}`);
    await setSlider(page, 'smoothing of training', 0);
    assert.deepEqual((await columns(page, 'loss'))[1], raw);
  });
  await test('the pointer names the step of a validation value', spiky, async (page) => {
    await seen(page, 'loss');
    const box = await page.locator('[data-chart=loss] .u-over').boundingBox();
    const left = await page.evaluate(() => globalThis.gluonCharts.loss.valToPos(17, 'x'));
    await page.mouse.move(box.x + left, box.y + 60);
    const shown = await page.locator('[data-chart=loss] .readout').innerText();
    assert.match(shown, /^step 17\n/);
    assert.match(shown, /spiky\s+validation\s+2\s+at step 15/);
    assert.match(shown, /spiky\s+training\s+2\.6\s*(\n|$)/); // 3 - 16 / 40, of this step
    await page.mouse.move(2, 2);
    assert.equal(await page.locator('.readout').filter({visible: true}).count(), 0);
  });
  await test('the legend names training and validation and hides lines', spiky, async (page) => {
    await seen(page, 'loss');
    const legend = page.locator('#loss .legend');
    assert.deepEqual((await legend.innerText()).split('\n'), ['training', 'validation', 'spiky']);
    await legend.locator('.entry').click();
    const shown = await page.evaluate(() => globalThis.gluonCharts.loss.series.map((one) => one.show));
    assert.deepEqual(shown, [true, false, false]);
  });
  await test('every chart is an image with a name, and keys read its values', spiky, async (page) => {
    await seen(page, 'loss');
    const chart = page.getByRole('img', {name: /^Loss: loss over steps\. Lines: spiky, training; spiky, validation/});
    await chart.focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.match(await page.locator('#loss .said').innerText(), /spiky, training 2\.95 at step 3/);
  });
  for (const steps of [2, 3, 5, 40]) {
    const name = `ticks-${steps}`;
    await test(`${steps} steps have whole ticks`, makePage(name, writeLog(name, rows(steps, () => 1))), async (page) => {
      await seen(page, 'loss');
      const shown = await ticks(page, 'loss');
      assert.ok(shown.length >= 2 && shown.every(Number.isInteger), shown.join());
    });
  }
  await test('a single step is drawn', makePage('single', writeLog('single', rows(1, () => 4))), async (page) => {
    await seen(page, 'loss');
    const points = await page.evaluate(() => {
      const chart = globalThis.gluonCharts.loss;
      return chart.series[1].points.filter(chart, 1);
    });
    assert.deepEqual(points, [0]);
  });
  const layers = makePage('filter', writeRun('filter', 10));
  await test('a filter of layers that finds nothing says so', layers, async (page) => {
    await page.fill('#filter', 'no such layer');
    assert.equal(await page.locator('.card').count(), 0);
    await page.getByText('No layer of filter has “no such layer” in its name, type or group.').waitFor();
  });
  await test('words of the paper are explained in visible text', layers, async (page) => {
    const words = await page.locator('#layers .glossary').innerText();
    for (const word of ['Lhat', '|g|*', 'L0, L1', 'relative error', 'above', 'B.0']) {
      assert.ok(words.includes(word), word);
    }
    assert.match(await page.locator('.card').first().innerText(), /relative error .* above/);
  });

  // The goal is 3 seconds; on a busy machine only ten times that is a failure.
  const many = count(50, (run) => writeLog(`run-${run}-${'of-a-long-name-'.repeat(4)}`,
    count(5000, (k) => [k + 1, 64 * (k + 1), 3 + Math.sin(k * (run + 1)) / 9, k % 50 ? '' : 3 - run / 50, k / 9])));
  const page50 = makePage('fifty', ...many);
  const bytes = statSync(fileURLToPath(page50)).size;
  for (const view of kViews) {
    await test(`50 runs x 5000 steps at ${view.width}`, page50, async (page, ms) => {
      assert.equal(await page.locator('#runs tbody tr').count(), 50);
      const start = performance.now();
      await seen(page, 'loss');
      const chart = performance.now() - start;
      assert.equal(await page.evaluate(() => globalThis.gluonCharts.loss.data.length), 101);
      console.log(`50 runs x 5000 steps: ${(bytes / 1e6).toFixed(1)} MB, shown after ${Math.round(ms)} ms, its chart ` +
        `${Math.round(chart)} ms later (goal: 3000)`);
      assert.ok(ms + chart < 30000);
      const looks = await page.locator('#loss .entry svg').evaluateAll((samples) => samples.map((sample) =>
        [getComputedStyle(sample).stroke, sample.firstChild.getAttribute('stroke-dasharray')].join()));
      assert.equal(new Set(looks).size, 50);
      assert.ok((await page.locator('nav').boundingBox()).width > 0.6 * view.width);
      await assertFits(page);
    }, view);
  }
  await test('50 runs x 5000 steps are under 10 MB', page50, async () => assert.ok(bytes < 10e6, `${bytes} bytes`));

  const paper = sharedData ? join(sharedData, 'paper-logs/nanogpt-unscion.txt') : '';
  if (!existsSync(paper)) {
    console.log("skipped: the paper's log does not exist");
    return;
  }
  const log = makePage('paper', paper);
  for (const view of kViews) {
    await test(`the paper's log at ${view.width}`, log, async (page) => {
      assert.match(await page.locator('#runs tbody').innerText(), /nanogpt-unscion/);
      const order = await page.locator('.card strong').allInnerTexts();
      const blocks = order.flatMap((title) => /B\.(\d+)/.exec(title)?.[1] ?? []).map(Number);
      assert.equal(blocks.length, 72);
      assert.deepEqual(blocks, [...blocks].sort((a, b) => a - b));
      await seen(page, 'blocks');
      await assertFits(page);
    }, view);
  }
});
