// The page in headless Chromium: node page_test.mjs PROGRAM [CHROMIUM]
//
// Makes pages from samples it writes itself, reads what the charts show and compares. Exits with 1 on a failure.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {chromium} from 'playwright-core';

const [program, executablePath = '/usr/bin/chromium'] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'gluon-page-'));
const header = 'step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius';

// Lhat = L1 |g|* with L1 = layer + 1, so that the constants are known.
function writeSamples(name, layers, samples) {
  const rows = [header];
  for (let k = 0; k < samples; ++k) {
    for (let i = 0; i < layers; ++i) {
      const g = 1 + ((k * 7 + i) % 13);
      rows.push(`${k * 50},blocks.${i >> 2}.t${i % 4}.weight,hidden,spectral,exact,same_batch,,1,${(i + 1) * g},${g},,0.5,0.1`);
    }
  }
  writeFileSync(join(folder, name), `${rows.join('\n')}\n`);
  const page = join(folder, `${name}.html`);
  execFileSync(program, ['report', join(folder, name), '--out', page]);
  return page;
}

const browser = await chromium.launch({executablePath, args: ['--no-sandbox', '--disable-gpu']});
let passed = 0;
let failed = 0;

// Each test has a page of its own; errors, warnings and requests on it are failures.
async function test(name, file, run, view = {width: 1440, height: 900}) {
  const complaints = [];
  const page = await browser.newPage({viewport: view});
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (!/^(file|data):/.test(request.url())) complaints.push(`request to ${request.url()}`);
  });
  try {
    const start = performance.now();
    await page.goto(`file://${file}`);
    await page.waitForSelector('[data-chart]');
    await run(page, performance.now() - start);
    assert.deepEqual(complaints, []);
    ++passed;
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${name}: ${error.stack}`);
  }
  await page.close();
}

const cardNames = (page) => page.locator('.card').evaluateAll((cards) => cards.map((card) => card.dataset.layer));
const xRange = (page, chart) => page.evaluate((id) => {
  const {min, max} = globalThis.gluonCharts[id].scales.x;
  return [min, max];
}, chart);

try {
  const small = writeSamples('small.csv', 8, 20);
  await test('every layer has a card with its samples and constants', small, async (page) => {
    assert.equal(await page.locator('.card').count(), 8);
    const card = page.locator('.card[data-layer="blocks.1.t2.weight"]');
    assert.equal(await card.getAttribute('data-samples'), '20');
    assert.match(await card.innerText(), /L0 0 · L1 7\n/);
  });
  await test('an opened layer shows the values of the file', small, async (page) => {
    await page.locator('.card[data-layer="blocks.0.t1.weight"]').click();
    const [step, lhat, line] = await page.evaluate(() => globalThis.gluonCharts['layer-0-steps'].data.map((c) => [...c]));
    assert.deepEqual(step, Array.from({length: 20}, (_, k) => k * 50));
    assert.deepEqual(lhat, Array.from({length: 20}, (_, k) => 2 * (1 + ((k * 7 + 1) % 13))));
    line.forEach((value, k) => assert.ok(Math.abs(value - lhat[k]) < 1e-6));
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('dialog[open]').count(), 0);
  });
  await test('filter and sort', small, async (page) => {
    await page.fill('#filter', 't3');
    assert.deepEqual(await cardNames(page), ['blocks.0.t3.weight', 'blocks.1.t3.weight']);
    await page.fill('#filter', '');
    await page.selectOption('#layers select', 'L1');
    assert.equal((await cardNames(page))[0], 'blocks.1.t3.weight');
  });
  await test('zoom by keys and by dragging', small, async (page) => {
    const before = await xRange(page, 'blocks');
    await page.locator('[data-chart=blocks]').focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('+');
    const near = await xRange(page, 'blocks');
    assert.ok(near[1] - near[0] < before[1] - before[0]);
    await page.keyboard.press('0');
    assert.deepEqual(await xRange(page, 'blocks'), before);
    const box = await page.locator('[data-chart=blocks] .u-over').boundingBox();
    await page.mouse.move(box.x + 100, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 60, {steps: 4});
    await page.mouse.up();
    const dragged = await xRange(page, 'blocks');
    assert.ok(dragged[1] - dragged[0] < before[1] - before[0]);
  });
  await test('the pointer shows values', small, async (page) => {
    await page.locator('[data-chart=blocks] .u-over').hover({position: {x: 3, y: 40}});
    // The first sample of t0: 1 in block 0, 5 x 5 in block 1.
    assert.deepEqual(await page.locator('[data-chart=blocks] .u-value').allInnerTexts(), ['0', '1', '25']);
  });
  await test('dark and light', small, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const before = await ground();
    await page.click('#theme');
    assert.notEqual(await ground(), before);
  });
  await test('nothing sticks out of a narrow window', small, async (page) => {
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  }, {width: 390, height: 800});
  await test('500 layers x 200 samples load in under 3 seconds', writeSamples('large.csv', 500, 200), async (page, ms) => {
    assert.equal(await page.locator('.card').count(), 500);
    assert.ok(ms < 3000, `took ${Math.round(ms)} ms`);
  });
} finally {
  await browser.close();
  rmSync(folder, {recursive: true});
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
