// The live page of gluon watch: fetches its data every second.

const kPause = 1000; // milliseconds

/** Calls `show` with each new report and `setStatus` with the state of the connection. Never returns. */
export async function follow<Report>(show: (report: Report) => void, setStatus: (text: string) => void): Promise<never> {
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
        setStatus(answer.status === 200 || answer.status === 304 ? 'live' : await answer.text());
      }
    } catch {
      setStatus('not live: gluon watch does not answer');
    }
    await new Promise((resume) => setTimeout(resume, kPause));
  }
}
