// A sweep of gluon sweep as a heatmap: node sweep_test.mjs PROGRAM CHROMIUM
import assert from 'node:assert/strict';
import {execFileSync, spawnSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {assertFits, columns, folder, kViews, main, makePage, program, smallModel, test} from './harness.mjs';

main(async () => {
  const sweep = join(folder, 'sweep');
  // A radius beyond float32 has no run: its cells say why.
  spawnSync(program, ['sweep', ...smallModel, '--steps', '4', '--eval-every', '2', '--preset', 'unscion', '--out', sweep,
    '--radius', 'hidden=0.005,0.02,0.08,1e39', 'embedding=0.3,1,3,10'], {stdio: 'ignore'});
  const page16 = makePage('sweep', sweep);
  const json = join(folder, 'sweep.json');
  execFileSync(program, ['report', sweep, '--json', json]);
  const {cells, best} = JSON.parse(readFileSync(json, 'utf8')).sweeps[0];
  const button = (page, cell) => page.locator(`.cell[data-radii="${cell.radii.join(',')}"]`);

  for (const view of kViews) {
    await test(`16 cells with their losses at ${view.width}`, page16, async (page) => {
      assert.equal(cells.length, 16);
      assert.equal(await page.locator('.cell').count(), 16);
      for (const cell of cells.filter(({val}) => val !== null)) {
        assert.equal(Number(await button(page, cell).locator('b').innerText()), Number(cell.val.toFixed(4)));
      }
      await assertFits(page);
    }, view);
  }
  await test('the best cell has a frame', page16, async (page) => {
    assert.equal(cells[best].val, Math.min(...cells.flatMap(({val}) => (val === null ? [] : [val]))));
    assert.equal(await page.locator('.cell.best').count(), 1);
    assert.equal(await page.locator('.cell.best').getAttribute('data-radii'), cells[best].radii.join(','));
    assert.equal(await button(page, cells[best]).evaluate((cell) => getComputedStyle(cell).borderTopWidth), '2px');
  });
  await test('a cell opens its curves and settings, by keys too', page16, async (page) => {
    const cell = cells.find(({radii}) => radii[0] === 0.02 && radii[1] === 3);
    await button(page, cell).focus();
    await page.keyboard.press('Enter');
    assert.match(await page.locator('#cell-title').innerText(), /hidden 0\.02, embedding 3/);
    const [steps, training, validation] = await columns(page, 'cell-loss');
    assert.deepEqual(steps, cell.run.log.loss.step);
    assert.deepEqual(training, cell.run.log.loss.value);
    assert.equal(validation.at(-1), cell.val);
    const settings = new Map(cell.run.settings);
    assert.equal(await page.locator('#cell [data-key=preset] dd').innerText(), 'unscion');
    assert.equal(await page.locator('#cell [data-key=radius] dd').innerText(), settings.get('radius'));
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('dialog[open]').count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.dataset.radii), cell.radii.join(','));
  });
  await test('a cell without a loss says why', page16, async (page) => {
    const failed = cells.filter((cell) => cell.failed);
    assert.equal(failed.length, 4);
    for (const cell of failed) assert.ok((await button(page, cell).innerText()).includes(cell.failed));
    await button(page, failed[0]).click();
    assert.equal(await page.locator('#cell .failure').innerText(), failed[0].failed);
    await assertFits(page);
  });
});
