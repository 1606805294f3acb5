/** The public API by `fetch`: one answer for equal questions, problems as errors with a place for each field. */

/** Answers that are kept for the same question; a page is open for a while, so not many. */
const KEPT = 60;
const answers = new Map();

/** An answer that is a problem (RFC 9457), or no answer at all. */
export class Problem extends Error {
  /** @param {{title?: string, detail?: string, status?: number, code?: string, errors?: Array<{pointer?: string, detail: string}>}} body */
  constructor(body) {
    super(body.detail || body.title || "the API did not answer");
    this.name = "Problem";
    this.status = body.status ?? 0;
    this.code = body.code ?? "";
    /** Faults with their JSON pointers into the body that was sent, e.g. `#/workload/context_tokens`. */
    this.errors = body.errors ?? [];
  }
}

/**
 * Ask the API.
 * @param {"GET"|"POST"|"PUT"|"DELETE"} method
 * @param {string} path e.g. `/v1/plans`
 * @param {Object} [body] sent as JSON
 * @param {AbortSignal} [signal] whoever asked no longer wants the answer; others who asked the same still get theirs
 * @returns {Promise<Object>} the JSON of the answer
 * @throws {Problem} with every fault; {DOMException} AbortError when `signal` says so
 */
export function call(method, path, body, signal) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  if (method === "PUT" || method === "DELETE") {
    answers.clear();
    return send(method, path, text);
  }
  const key = `${method} ${path} ${text ?? ""}`;
  const known = answers.get(key);
  const asked = known ?? share(key, method, path, text);
  if (known) {
    answers.delete(key);
    answers.set(key, known);
  }
  asked.wanted += 1;
  if (!signal) return asked.promise;
  return new Promise((resolve, reject) => {
    const leave = () => {
      asked.wanted -= 1;
      if (asked.wanted === 0 && !asked.done) {
        asked.controller.abort();
        answers.delete(key);
      }
      reject(new DOMException("no longer wanted", "AbortError"));
    };
    if (signal.aborted) return leave();
    signal.addEventListener("abort", leave, { once: true });
    asked.promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}

/** Send a question once for all who ask it. */
function share(key, method, path, text) {
  const controller = new AbortController();
  const asked = { wanted: 0, done: false, controller, promise: null };
  asked.promise = send(method, path, text, controller.signal);
  asked.promise.then(
    () => { asked.done = true; },
    () => answers.delete(key),
  );
  answers.set(key, asked);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  return asked;
}

async function send(method, path, text, signal) {
  const headers = { accept: "application/json, application/problem+json" };
  if (text !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: text, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ detail: "The server cannot be reached. Is it still running?", code: "unreachable" });
  }
  const json = await response.json().catch(() => null);
  if (response.ok) return json;
  throw new Problem({ status: response.status, ...(json ?? { detail: `the server answered ${response.status}` }) });
}

/** The same call for a shell. */
export function curl(method, path, body) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const url = quote(new URL(path, location.origin).href);
  const how = method === "GET" ? "" : ` -X ${method}`;
  if (body === undefined) return `curl -s${how} ${url}`;
  const post = method === "POST" ? "" : how;
  return `curl -s${post} ${url} -H 'content-type: application/json' -d ${quote(JSON.stringify(body))}`;
}
