// Bundles src/ and its libraries into one HTML file: node bundle.mjs page.html
import {build} from 'esbuild';
import {readFile, writeFile} from 'node:fs/promises';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const out = process.argv[2];
if (!out) throw new Error('usage: node bundle.mjs page.html');
const source = join(dirname(fileURLToPath(import.meta.url)), 'src');

const options = {bundle: true, minify: true, write: false, charset: 'ascii', logLevel: 'warning'};
const script = await build({...options, entryPoints: [join(source, 'main.ts')], format: 'iife', target: 'es2022'});
const style = await build({...options, entryPoints: [join(source, 'style.css')]});

const page = await readFile(join(source, 'page.html'), 'utf8');
const text = (result) => result.outputFiles[0].text.replaceAll('</script', '<\\/script').trim();
await writeFile(out, page.replace('/*STYLE*/', () => text(style)).replace('/*SCRIPT*/', () => text(script)));
