// Fits that can be trusted and fits that cannot, on the samples of a real run: node fits_test.mjs PROGRAM CHROMIUM
//
// In tests/baselines/scion_smoothness.csv the first sample of some layers is hundreds of times too large.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {assertFits, folder, kViews, main, makePage, program, test} from './harness.mjs';

const samples = fileURLToPath(new URL('../../tests/baselines/scion_smoothness.csv', import.meta.url));
const card = (page, layer) => page.locator(`.card[data-layer="${layer.name}"]`);

function dataOf(name, ...flags) {
  const path = join(folder, `${name}.json`);
  execFileSync(program, ['report', samples, ...flags, '--json', path]);
  return JSON.parse(readFileSync(path, 'utf8')).runs[0];
}

main(async () => {
  const robust = dataOf('robust');
  const paper = dataOf('paper', '--skip-first', '0');

  await test('the samples left out at the start are said', makePage('robust', samples), async (page) => {
    const left = robust.layers.filter(({fit}) => fit.leftOut > 0);
    assert.ok(left.length > 0 && left.length < robust.layers.length);
    for (const layer of robust.layers) {
      const shown = await card(page, layer).innerText();
      assert.equal(/samples? left out at the start/.test(shown), layer.fit.leftOut > 0, `${layer.name}: ${shown}`);
      assert.match(shown, /relative error \S+ · \d+ % above/);
    }
    assert.match(await page.locator('footer').innerText(), /outliers at the start left out/);
    await card(page, left[0]).click();
    assert.match(await page.locator('#layer').innerText(), /samples left out of the fit at the start: \d/);
  });
  const asPaper = makePage('paper', samples, '--skip-first', '0');
  await test('a fit that means nothing is grey and says why', asPaper, async (page) => {
    const doubtful = paper.layers.filter(({fit}) => fit.doubt);
    assert.ok(doubtful.length > 0 && doubtful.length < paper.layers.length);
    for (const layer of paper.layers) {
      const shown = await card(page, layer).innerText();
      assert.equal(await card(page, layer).locator('.doubtful').count() > 0, layer.fit.doubt !== '', layer.name);
      assert.ok(shown.includes(layer.fit.doubt), shown);
    }
    const ink = (selector) => page.locator(selector).first().evaluate((element) => getComputedStyle(element).color);
    assert.notEqual(await ink('.card .doubtful'), await ink('.card .doubt'));
    await card(page, doubtful[0]).click();
    assert.equal(await page.locator('#layer .note.doubt').innerText(), `In doubt: ${doubtful[0].fit.doubt}.`);
  });
  // A group of doubtful layers alone has a doubtful radius.
  const names = new Set(paper.layers.filter(({fit}) => fit.doubt).map(({name}) => name));
  const [head, ...lines] = readFileSync(samples, 'utf8').trim().split('\n');
  const bad = join(folder, 'doubtful.csv');
  writeFileSync(bad, [head, ...lines.filter((line) => names.has(line.split(',')[1]))].join('\n'));
  const radii = makePage('radii', bad, '--skip-first', '0');
  for (const view of kViews) {
    await test(`a radius from doubtful fits says so at ${view.width}`, radii, async (page) => {
      assert.match(await page.locator('#radii .doubt').innerText(), /none of its \d+ fits can be trusted/);
      assert.equal(await page.locator('#radii .doubtful').count(), 3); // the prediction, L0 and L1
      await assertFits(page);
    }, view);
  }
});
