// Questions to the console's server.

export const session = {};

export class Refused extends Error {}

async function answered(answer) {
  if (answer.status === 401) {
    location.href = "/login";
    throw new Refused("log in first");
  }
  const document = await answer.json();
  if (!answer.ok) throw new Refused(document.error);
  return document;
}

export function search(query) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
}

export async function begin() {
  Object.assign(session, await answered(await fetch("/api/session")));
}

export async function ask(view, query) {
  try {
    return await answered(await fetch(`/api/${view}?${search(query)}`));
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused("The console does not answer. Is it still running?");
  }
}

export async function change(name, given) {
  return (
    await answered(
      await fetch(`/api/changes/${name}`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-semel-console": session.csrf },
        body: JSON.stringify(given),
      }),
    )
  ).done;
}

export async function logout() {
  await fetch("/api/logout", { method: "POST", headers: { "x-semel-console": session.csrf } });
  location.href = "/login";
}

/** Follows a document: `told(document)` for each, `failed(sentence)` for what goes wrong. A page that nobody sees follows
 *  nothing: browsers have few connections. Returns what ends it. */
export function follow(path, query, handlers) {
  let source = null;
  let ended = false;

  function open() {
    if (source || ended) return;
    source = new EventSource(`/api/${path}?${search(query)}`);
    for (const [kind, handler] of Object.entries(handlers)) {
      if (kind !== "failed") source.addEventListener(kind, (event) => handler(JSON.parse(event.data)));
    }
    source.addEventListener("problem", (event) => handlers.failed(JSON.parse(event.data).error));
    source.onerror = async () => {
      if (ended) return;
      handlers.failed("The console does not answer; trying again.");
      try {
        const answer = await fetch("/api/session");
        if (answer.status === 401) location.href = "/login";
        // After a restart of the console the token is another.
        else if (answer.ok) Object.assign(session, await answer.json());
      } catch {
        // It is still away.
      }
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 2000);
      }
    };
  }

  function close() {
    source?.close();
    source = null;
  }

  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}
