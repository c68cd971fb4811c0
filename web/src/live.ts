// A live page, as gluon watch serves it: asks for data again and again.

const kPause = 1000; // milliseconds

/** Calls `show` with each new report and `say` with how things stand, for ever. */
export async function follow<Report>(show: (report: Report) => void, say: (words: string) => void): Promise<never> {
  let tag = '';
  for (;;) {
    try {
      if (!document.hidden) {
        const headers: HeadersInit = tag ? {'If-None-Match': tag} : {};
        const answer = await fetch(`data.json${location.search}`, {cache: 'no-store', headers});
        if (answer.status === 200) {
          show(await answer.json() as Report);
          tag = answer.headers.get('ETag') ?? '';
        }
        say(answer.status === 200 || answer.status === 304 ? 'live' : await answer.text());
      }
    } catch {
      say('not live: gluon watch does not answer');
    }
    await new Promise((resume) => setTimeout(resume, kPause));
  }
}
