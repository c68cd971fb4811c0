// The table of runs and the settings, on runs of gluon train: node runs_test.mjs PROGRAM CHROMIUM
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {assertFits, columns, folder, kViews, main, makePage, program, seen, smallModel, test, train}
  from './harness.mjs';

const column = (page, index) => page.locator(`#runs tbody td:nth-child(${index})`).allInnerTexts();
const names = (page) => column(page, 2);
const text = (page, name, index) => page.locator(`#runs tr[data-run="${name}"] td:nth-child(${index})`).innerText();
const presets = ['sign_descent', 'normalized_descent', 'adamw', 'muon'];
const longName = `long-${'name-of-a-run-'.repeat(12)}end`;

/** A run that is still training; the caller ends it. */
async function startRun(path) {
  const child = spawn(program, ['train', ...smallModel, '--steps', '1000000', '--out', path], {stdio: 'ignore'});
  const log = join(path, 'log.csv');
  while (!existsSync(log) || readFileSync(log, 'utf8').split('\n').length < 6) {
    if (child.exitCode !== null) throw new Error('gluon train ended before its fifth step');
    await new Promise((resume) => setTimeout(resume, 50));
  }
  return child;
}

main(async () => {
  const runs = join(folder, 'runs');
  const flags = ['--steps', 12, '--eval-every', 4];
  const smoothness = ['--smoothness-every', 2];
  train(join(runs, 'scion'), ...flags, ...smoothness, '--preset', 'scion');
  presets.forEach((preset) => train(join(runs, preset), ...flags, '--preset', preset));
  [1, 2, 3].forEach((seed) => train(join(runs, `seed-${seed}`), ...flags, '--seed', seed));
  train(join(runs, longName), ...flags, '--seed', 7);
  train(join(runs, 'failed'), ...flags, '--preset', 'sign_descent', '--radius', 'all=1e30');
  const ten = makePage('ten', runs);

  await test('ten runs: one row each, sorted by every column with keys', ten, async (page) => {
    const given = await names(page);
    assert.equal(given.length, 10);
    const heads = page.locator('#runs thead button');
    for (let k = 0; k < await heads.count(); ++k) {
      await heads.nth(k).focus();
      await page.keyboard.press('Enter');
      assert.match(await page.locator('#runs thead th').nth(k).getAttribute('aria-sort'), /ascending|descending/);
      assert.equal(await page.locator('#runs [aria-sort]').count(), 1);
    }
    await page.locator('[data-sort=last]').click();
    const shown = (await column(page, 6)).filter((value) => value !== '–').map(Number);
    assert.ok(shown.length >= 9);
    assert.deepEqual(shown, [...shown].sort((a, b) => a - b));
    await page.locator('[data-sort=last]').click();
    const reverse = await column(page, 6);
    assert.deepEqual(reverse.filter((value) => value !== '–').map(Number), shown.reverse());
    await page.locator('[data-sort=last]').click();
    assert.deepEqual(await names(page), given);
    assert.equal(await page.locator('#runs [aria-sort]').count(), 0);
    await page.locator('[data-sort=run]').click();
    assert.deepEqual(await names(page), [...given].sort((a, b) => a.localeCompare(b, 'en', {numeric: true})));
  });
  const failed = async (page) => {
    const status = await text(page, 'failed', 3);
    const error = JSON.parse(readFileSync(join(runs, 'failed/status.json'), 'utf8')).error;
    assert.match(status, /failed at step \d+ of 12/);
    assert.ok(error.length > 10 && status.includes(error), `${status} does not say ${error}`);
    await page.getByRole('button', {name: 'Hide all'}).click();
    await page.getByText('No run is shown: all are switched off').first().waitFor();
    await page.locator('tr[data-run=failed] .toggle').click();
    await seen(page, 'loss');
    const known = (await columns(page, 'loss'))[1].filter((value) => value != null);
    assert.equal(known.length, 1);
    const drawn = await page.evaluate(() => {
      const {ctx, bbox, series} = globalThis.gluonCharts.loss;
      const pixels = ctx.getImageData(bbox.left, bbox.top, bbox.width, bbox.height).data;
      const [r, g, b] = series[1].stroke(null, 1).match(/\w\w/g).map((pair) => parseInt(pair, 16));
      let count = 0;
      for (let k = 0; k < pixels.length; k += 4) {
        const near = Math.abs(pixels[k] - r) + Math.abs(pixels[k + 1] - g) + Math.abs(pixels[k + 2] - b) < 60;
        if (near && pixels[k + 3] > 90) ++count;
      }
      return count;
    });
    assert.ok(drawn >= 15, `${drawn} pixels of the point`);
  };
  for (const view of kViews) {
    await test(`a run that failed says where and why, and its one point is drawn at ${view.width}`, ten, failed, view);
  }
  await test('the table chooses what the charts show', ten, async (page) => {
    const lines = async () => (await columns(page, 'loss')).length - 1;
    const all = await lines();
    await page.locator('tr[data-run=muon] .toggle').focus();
    await page.keyboard.press('Space');
    assert.equal(await lines(), all - 2);
    assert.equal(await page.locator('tr[data-run=muon] .toggle').getAttribute('aria-pressed'), 'false');
    assert.equal(await page.evaluate(() => document.activeElement.dataset.focus), 'muon');
    await page.getByRole('button', {name: 'Show all'}).click();
    await page.fill('#run-filter', 'seed-');
    assert.equal(await lines(), 6);
    assert.equal((await names(page)).length, 3);
    await page.fill('#run-filter', 'nothing');
    await page.getByText('No run matches “nothing”').waitFor();
    await page.getByText('none that is switched on matches “nothing”').first().waitFor();
  });
  await test('settings show resolved values and mark what differs', ten, async (page) => {
    const row = (key) => page.locator(`#settings tr[data-key="${key}"]`);
    await page.fill('#run-filter', 'seed-');
    assert.match(await row('seed').getAttribute('class'), /differs/);
    assert.deepEqual(await row('seed').locator('td').allInnerTexts(), ['1', '2', '3']);
    assert.equal(await row('preset').getAttribute('class'), '');
    assert.doesNotMatch(await row('schedule').innerText(), /empty/);
    await page.check('#only-differences');
    assert.deepEqual(await page.locator('#settings tbody th').allInnerTexts(), ['seed']);
    await page.fill('#run-filter', 'seed-1');
    await page.getByText('there is nothing to differ from').waitFor();
  });
  for (const view of kViews) {
    await test(`long names leave the navigation usable at ${view.width}`, ten, async (page) => {
      await assertFits(page);
      const nav = await page.locator('nav').boundingBox();
      assert.ok(nav.width > 0.6 * view.width && nav.height < 60, JSON.stringify(nav));
      await page.locator('nav a', {hasText: 'Loss'}).click();
      const top = await page.locator('#loss').evaluate((element) => element.getBoundingClientRect().top);
      assert.ok(top >= 0 && top < view.height / 2, `the section is at ${top}`);
      await seen(page, 'optimizer');
      await assertFits(page);
    }, view);
  }
  await test('every run has its own line, a run the same everywhere', ten, async (page) => {
    const looks = await page.locator('#runs .toggle svg').evaluateAll((samples) => samples.map((sample) =>
      [getComputedStyle(sample).stroke, sample.firstChild.getAttribute('stroke-dasharray')].join()));
    assert.equal(new Set(looks).size, 10);
    const card = await page.locator('.card path.measured').first().evaluate((path) => getComputedStyle(path).stroke);
    const row = await page.locator('tr[data-run=scion] .toggle svg').evaluate((svg) => getComputedStyle(svg).stroke);
    assert.equal(card, row);
  });

  const path = join(folder, 'running');
  const child = await startRun(path);
  try {
    const running = makePage('running', path);
    for (const view of kViews) {
      await test(`a running run says how far it is and how long it will take at ${view.width}`, running, async (page) => {
        assert.match(await text(page, 'running', 3), /running, step [\d,]+ of 1,000,000, .+ left/);
        assert.equal(await page.locator('#runs progress').getAttribute('max'), '1000000');
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), view.width);
      }, view);
    }
  } finally {
    child.kill('SIGKILL');
  }
  await new Promise((resume) => child.once('exit', resume));
  await test('a killed run says so', makePage('killed', path), async (page) => {
    assert.match(await text(page, 'running', 3), /killed at step [\d,]+ of 1,000,000/);
  });
});
