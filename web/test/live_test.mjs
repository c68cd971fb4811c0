// gluon watch in headless Chromium: node live_test.mjs PROGRAM CHROMIUM
//
// Watches a run that grows while its page is open.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {appendFileSync, mkdirSync} from 'node:fs';
import {join} from 'node:path';
import {columns, folder, logLine, main, program, test, writeRun, xRange} from './harness.mjs';

/** Starts the server and returns it with its address. */
async function watch(run) {
  const server = spawn(program, ['watch', run, '--port', '0'], {stdio: ['ignore', 'pipe', 'inherit']});
  let output = '';
  for await (const bytes of server.stdout) {
    output += bytes;
    const address = /http:\S+/.exec(output);
    if (address) return {server, address: address[0]};
  }
  throw new Error(`gluon watch ended: ${output}`);
}

/** A folder in which a run appears while its page is open. */
async function newRuns() {
  mkdirSync(join(folder, 'runs'));
  writeRun('runs/first', 20);
  const {server, address} = await watch(join(folder, 'runs'));
  try {
    await test('a new run appears and the choices of the reader stay', address, async (page) => {
      const names = () => page.locator('#runs tbody tr').evaluateAll((rows) => rows.map((row) => row.dataset.run));
      assert.deepEqual(await names(), ['first']);
      await page.locator('tr[data-run=first] .toggle').click();
      await page.locator('#loss').getByLabel('scale').selectOption('log');
      writeRun('runs/second', 30);
      await page.locator('tr[data-run=second]').waitFor();
      assert.equal(await page.locator('tr[data-run=first] .toggle').getAttribute('aria-pressed'), 'false');
      assert.equal((await columns(page, 'loss')).length, 3); // steps, training and validation of the second
      assert.equal(await page.evaluate(() => globalThis.gluonCharts.loss.scales.log.distr), 3);
      await page.locator('tr[data-run=first] .toggle').click();
      assert.equal((await columns(page, 'loss')).length, 5);
    });
  } finally {
    server.kill('SIGKILL');
  }
}

main(async () => {
  await newRuns();
  const run = writeRun('live', 20);
  const {server, address} = await watch(run);
  const ended = new Promise((resolve) => server.once('exit', resolve));
  const losses = async (page, steps) => {
    await page.locator('[data-place=loss]').scrollIntoViewIfNeeded(); // newer data draws what is near the window
    await page.waitForFunction((wanted) => globalThis.gluonCharts.loss?.data[0].length === wanted, steps);
  };
  try {
    await test('a page grows with its run and keeps zoom and filter', address, async (page, _, complaints) => {
      await losses(page, 20);
      assert.equal(await page.locator('#live').innerText(), 'live');
      await page.fill('#filter', 't3');
      await page.locator('[data-chart=blocks]').focus();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('+');
      const zoomed = await xRange(page, 'blocks');
      const chart = await page.locator('[data-chart=loss]').elementHandle();

      for (let k = 21; k <= 25; ++k) appendFileSync(join(run, 'log.csv'), `${logLine(k)}\n`);
      await losses(page, 25);
      assert.deepEqual((await columns(page, 'loss'))[0].slice(-1), [25]);
      assert.equal(await page.locator('[data-chart=loss]').getAttribute('data-points'), '25,2');
      assert.deepEqual(await xRange(page, 'loss'), [1, 25]);
      assert.deepEqual(await xRange(page, 'blocks'), zoomed);
      assert.equal(await page.locator('.card').count(), 2);
      assert.ok(await chart.evaluate((element) => element.isConnected), 'the chart was rebuilt');
      assert.deepEqual(complaints, []);

      server.kill('SIGTERM');
      assert.equal(await ended, 0);
      await page.getByText('gluon watch does not answer').waitFor();
      complaints.length = 0; // the browser reports the refused connection
    });
  } finally {
    server.kill('SIGKILL');
  }
});
