// SHA-256 of files, off the page's thread: by the browser where it offers that (https, localhost), else by the code below (FIPS 180-4).
const K = new Uint32Array(64), START = new Uint32Array(8);
for (let found = 0, number = 2; found < 64; number++) {
  let prime = true;
  for (let by = 2; by * by <= number; by++) if (number % by === 0) prime = false;
  if (!prime) continue;
  if (found < 8) START[found] = (number ** 0.5 % 1) * 2 ** 32;
  K[found++] = (Math.cbrt(number) % 1) * 2 ** 32;
}

export class Sha256 {
  #state = START.slice();
  #rest = new Uint8Array(64);
  #filled = 0;
  #length = 0;
  #words = new Uint32Array(64);

  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    if (this.#filled) {
      at = Math.min(64 - this.#filled, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < 64) return this;
      this.#block(this.#rest, 0);
      this.#filled = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) this.#block(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#filled = bytes.length - at;
    return this;
  }

  hex() {
    const length = this.#length, end = new Uint8Array(this.#filled < 56 ? 64 - this.#filled : 128 - this.#filled), view = new DataView(end.buffer);
    end[0] = 0x80;
    view.setUint32(end.length - 8, Math.floor(length / 2 ** 29));
    view.setUint32(end.length - 4, (length << 3) >>> 0);
    this.update(end);
    return [...this.#state].map((word) => word.toString(16).padStart(8, "0")).join("");
  }

  #block(bytes, at) {
    const w = this.#words, s = this.#state;
    for (let i = 0; i < 16; i++, at += 4) w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3), s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = s;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7)), t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10)), t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
  }
}

const PART = 16 * 2 ** 20;

async function digest(bytes) {
  const subtle = globalThis.crypto?.subtle;
  if (!subtle) return new Sha256().update(bytes).hex();
  return [...new Uint8Array(await subtle.digest("SHA-256", bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The hash of a file, and of each of its parts if it has more than one
async function hashes(file) {
  if (file.size <= PART) return { sha256: await digest(new Uint8Array(await file.arrayBuffer())), parts: [] };
  const whole = new Sha256(), parts = [];
  for (let from = 0; from < file.size; from += PART) {
    const bytes = new Uint8Array(await file.slice(from, from + PART).arrayBuffer());
    whole.update(bytes);
    parts.push(await digest(bytes));
  }
  return { sha256: whole.hex(), parts };
}

if (globalThis.WorkerGlobalScope && globalThis instanceof WorkerGlobalScope) {
  globalThis.onmessage = async ({ data: { number, file } }) => {
    try {
      globalThis.postMessage({ number, ...(await hashes(file)) });
    } catch (error) {
      globalThis.postMessage({ number, error: String(error?.message || error) });
    }
  };
}
