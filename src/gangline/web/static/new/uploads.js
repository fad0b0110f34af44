// Send files by their content: hashed first, what the server has is not sent again, and what fails is tried again.
import { onServer } from "../elements.js";
import { ask, readProblem } from "../page.js";

const PART = 16 * 2 ** 20, TOGETHER = 100, AT_ONCE = 4, TRIES = 5;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let worker = null, asked = 0;
const waiting = new Map();

export function hashed(file) {
  if (!worker) {
    worker = new Worker(new URL("./hash.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => {
      const { file, resolve, reject } = waiting.get(data.number);
      waiting.delete(data.number);
      data.error ? reject(new Error(`${file.name}: ${data.error}`)) : resolve({ sha256: data.sha256, parts: data.parts, bytes: file.size });
    };
    worker.onerror = () => { // its script may be that of a server that is away, or of another version
      worker = null;
      waiting.forEach(({ reject }) => reject(new Error("A script of this page cannot be loaded; try again, or reload the page.")));
      waiting.clear();
    };
  }
  return new Promise((resolve, reject) => {
    const number = ++asked;
    waiting.set(number, { file, resolve, reject });
    worker.postMessage({ number, file });
  });
}

// A request of the API that may be repeated. Throws what the server says.
export async function answered(method, url, value) {
  for (let attempt = 1; ; attempt++) {
    const response = await ask(method, url, value).catch(() => null);
    if (response?.ok) return response.status === 204 ? null : response.json();
    const again = !response || response.status === 429 || response.status >= 502;
    if (!again || attempt === TRIES) {
      const problem = response ? await readProblem(response) : { detail: "The server does not answer.", hint: "" };
      throw Object.assign(new Error(problem.hint ? `${problem.detail}: ${problem.hint}` : problem.detail), { status: response?.status });
    }
    await pause(Math.max(Number(response?.headers.get("Retry-After")) || 0, 2 ** (attempt - 1) / 2) * 1000);
  }
}

function put({ url, headers }, body, signal, progress) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    request.open("PUT", onServer(url));
    for (const [name, value] of Object.entries(headers)) if (name.toLowerCase() !== "content-length") request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded }) => progress(loaded);
    request.onloadend = () => {
      signal.removeEventListener("abort", stop);
      if (signal.aborted) reject(signal.reason);
      else if ((request.status >= 200 && request.status < 300) || request.status === 412) resolve(); // 412: it is there
      else reject(new Error(request.status ? `the store answered ${request.status}` : "the connection was cut"));
    };
    signal.addEventListener("abort", stop);
    request.send(body);
  });
}

async function inTurn(items, count, does) {
  const left = [...items];
  await Promise.all(Array.from({ length: count }, async () => { while (left.length) await does(left.shift()); }));
}

// Send files ({ blob, sha256, bytes, parts, sent }) that have been hashed. `progress` is called as `sent` grows.
export async function send(files, signal, progress) {
  for (let from = 0; from < files.length; from += TOGETHER) await sendTogether(files.slice(from, from + TOGETHER), signal, progress);
}

async function sendTogether(files, signal, progress) {
  for (let attempt = 1; ; attempt++) {
    signal.throwIfAborted();
    const unique = [...new Map(files.map((file) => [file.sha256, file])).values()];
    const wanted = unique.map(({ sha256, bytes, parts }) => ({ sha256, bytes, parts }));
    const { missing } = await answered("POST", "/v1/blobs/missing", { files: wanted });
    const grants = new Map(missing.map(({ sha256, grant }) => [sha256, grant]));
    for (const file of files) if (!grants.has(file.sha256)) file.sent = file.bytes;
    progress();
    if (!missing.length) return;
    if (attempt > TRIES) throw new Error(`${missing.length} of the files did not arrive`);
    let failed = null;
    await inTurn(unique.filter((file) => grants.has(file.sha256)), AT_ONCE, async (file) => {
      try {
        await sendOne(file, grants.get(file.sha256), signal, progress);
      } catch (error) {
        if (signal.aborted) throw error;
        failed = error;
      }
    });
    if (failed) {
      if (attempt === TRIES) throw failed;
      await pause(2 ** attempt * 500);
    }
  }
}

async function sendOne(file, grant, signal, progress) {
  let before = 0;
  for (const [number, part] of grant.parts.entries()) {
    const body = file.blob.slice(number * PART, grant.parts.length === 1 ? file.bytes : (number + 1) * PART);
    if (part) await put(part, body, signal, (loaded) => { file.sent = Math.min(before + loaded, file.bytes); progress(); });
    before += body.size;
    file.sent = before;
    progress();
  }
}
