// Shared by the browser tests: sample runs, one page per test, and the count of passed tests.
import assert from 'node:assert/strict';
import {execFileSync, spawnSync} from 'node:child_process';
import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {chromium} from 'playwright-core';

export const [program, executablePath, sharedData] = process.argv.slice(2);
if (!executablePath) throw new Error('usage: node TEST.mjs PROGRAM CHROMIUM [SHARED_DATA]');
export const folder = mkdtempSync(join(tmpdir(), 'gluon-page-'));

const kColumns = 'step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,' +
  'momentum,alignment,radius';

export const count = (length, value) => Array.from({length}, (_, k) => value(k));

/** |g|* of layer i at sample k; Lhat = (i + 1) |g|*, so that L0 = 0 and L1 = i + 1. */
export const gradient = (k, i) => 1 + ((k * 7 + i) % 13);

export function writeSamples(path, layers, samples) {
  const rows = [kColumns];
  for (let k = 0; k < samples; ++k) {
    for (let i = 0; i < layers; ++i) {
      const g = gradient(k, i);
      rows.push([k * 50, `blocks.${i >> 2}.t${i % 4}.weight`, 'hidden', 'spectral', 'exact', 'same_batch', '', 1,
        (i + 1) * g, g, '', (k + i) / 100, 0.1].join(','));
    }
  }
  writeFileSync(path, `${rows.join('\n')}\n`);
}

/** A run with a log of `steps` rows, an evaluation at every tenth, and samples of 8 layers. */
export function writeRun(name, steps) {
  const path = join(folder, name);
  mkdirSync(path);
  writeFileSync(join(path, 'config.toml'), `steps=${steps}\n`);
  const rows = ['step,tokens,loss,val,seconds,optimizer,radius_head,radius_hidden'];
  for (let k = 1; k <= steps; ++k) rows.push(logLine(k));
  writeFileSync(join(path, 'log.csv'), `${rows.join('\n')}\n`);
  writeSamples(join(path, 'smoothness.csv'), 8, 20);
  return path;
}

export const logLine = (k) =>
  [k, k * 64, 10 / k, k % 10 === 0 ? 12 / k : '', k / 4, 0.1 + (k % 3) / 10, 1 / k, 0.1].join(',');

/** A run of which there is only a log: step, tokens, loss, val and seconds of each row. */
export function writeLog(name, rows) {
  const path = join(folder, name);
  mkdirSync(path);
  writeFileSync(join(path, 'config.toml'), 'steps=5\n');
  const lines = ['step,tokens,loss,val,seconds', ...rows.map((row) => row.join(','))];
  writeFileSync(join(path, 'log.csv'), `${lines.join('\n')}\n`);
  return path;
}

// A text of its own, so that the runs need no data from elsewhere.
const kText = join(folder, 'text.txt');
writeFileSync(kText, Array.from({length: 2000}, (_, k) => `${(k * k) % 97} green bottles, `).join(''));

/** Flags of the smallest model, which trains in a moment. */
export const smallModel = ['--data', kText, '--layers', 1, '--width', 16, '--heads', 1, '--seq', 16, '--batch', 2,
  '--val-tokens', 64].map(String);

/** A run of gluon train; one that fails is a run too. */
export function train(path, ...flags) {
  spawnSync(program, ['train', ...smallModel, '--out', path, ...flags.map(String)], {stdio: 'ignore'});
  return path;
}

/** The page that gluon report makes of `runs`. */
export function makePage(name, ...runs) {
  const page = join(folder, `${name}.html`);
  execFileSync(program, ['report', ...runs, '--out', page]);
  return `file://${page}`;
}

const kTimeout = 120000; // milliseconds; long, because the machine may be busy
const browser = await chromium.launch({executablePath, timeout: kTimeout, args: ['--no-sandbox', '--disable-gpu',
  '--disable-background-networking', '--disable-component-update', '--disable-sync']});
let passed = 0;
let failed = 0;

/** Each test has its own page; console messages, errors and requests to other servers are failures. */
export async function test(name, address, run, view = {width: 1440, height: 900}) {
  const complaints = [];
  const page = await browser.newPage({viewport: view});
  page.setDefaultTimeout(kTimeout);
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith('data:') && !url.startsWith(new URL('.', address).href)) complaints.push(`request to ${url}`);
  });
  try {
    const start = performance.now();
    await page.goto(address);
    await page.waitForSelector('section:not([hidden])');
    await run(page, performance.now() - start, complaints);
    assert.deepEqual(complaints, []);
    ++passed;
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${name}: ${error.stack}`);
  }
  await page.close();
}

/** Scrolls to a chart: it is drawn when it is near the window. */
export async function seen(page, chart) {
  const place = page.locator(`[data-place="${chart}"]`);
  if (await place.count()) await place.scrollIntoViewIfNeeded();
  await page.waitForFunction((id) => id in globalThis.gluonCharts, chart);
}

/** The columns of a chart: its x, then each series. */
export async function columns(page, chart) {
  await seen(page, chart);
  return page.evaluate((id) => globalThis.gluonCharts[id].data.map((column) => [...column]), chart);
}

export async function xRange(page, chart) {
  await seen(page, chart);
  return page.evaluate((id) => {
    const {min, max} = globalThis.gluonCharts[id].scales.x;
    return [min, max];
  }, chart);
}

/** Console messages are failures already; this is the other half of a page that fits its window. */
export async function assertFits(page) {
  const {width} = page.viewportSize();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
}

export const kViews = [{width: 1440, height: 900}, {width: 390, height: 800}];

/** Runs the tests; the exit status is 1 when one has failed. */
export async function main(tests) {
  try {
    await tests();
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${error.stack}`);
  }
  await browser.close();
  rmSync(folder, {recursive: true});
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}
