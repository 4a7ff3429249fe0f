// The weights that a page carries: base64 of gzip, checked before they are used.

import { sizeOf, tensor, toTyped } from "./tensors.js";

const INT8_STORED = "i8";
const HALF_STORED = "f16";

/** @type {(text: string) => Uint8Array} */
export function decodeBase64(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let k = 0; k < bytes.length; k += 1) bytes[k] = characters.charCodeAt(k);
  return bytes;
}

/** What an element holds: a JSON string, base64 of bytes that gzip compressed. @type {(text: string) => Response} */
export function unpack(text) {
  const bytes = new Blob([/** @type {any} */ (decodeBase64(JSON.parse(text)))]);
  return new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip")));
}

function fractionBits(x) {
  return Math.floor((x - Math.floor(x)) * 2 ** 32) | 0;
}

function firstPrimes(count) {
  const primes = /** @type {number[]} */ ([]);
  for (let n = 2; primes.length < count; n += 1) if (primes.every((prime) => n % prime)) primes.push(n);
  return primes;
}

/** SHA-256 in hexadecimal (FIPS 180-4). Not by crypto.subtle, which pages from http:// do not have. @type {(bytes: Uint8Array) => string} */
export function sha256(bytes) {
  const primes = firstPrimes(64);
  const constants = Int32Array.from(primes, (prime) => fractionBits(Math.cbrt(prime)));
  const state = Int32Array.from(primes.slice(0, 8), (prime) => fractionBits(Math.sqrt(prime)));
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, bytes.length << 3);
  const words = new Int32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let k = 0; k < 16; k += 1) words[k] = view.getInt32(block + 4 * k);
    hashBlock(state, words, constants);
  }
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function rotate(x, count) {
  return (x >>> count) | (x << (32 - count));
}

function hashBlock(state, words, constants) {
  for (let k = 16; k < 64; k += 1) {
    const [x, y] = [words[k - 15], words[k - 2]];
    const small = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
    words[k] = words[k - 16] + small + words[k - 7] + (rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10));
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let k = 0; k < 64; k += 1) {
    const one = (h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + constants[k] + words[k]) | 0;
    const two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, k) => { state[k] += word; });
}

export const DAMAGED = "this page was changed or damaged after it was made, so that its model is not used; get it again, or export it again";

/** Whether texts have the digests that were made with the page. @type {(parts: Record<string, string>, digests: Record<string, string>) => boolean} */
export function isIntact(parts, digests) {
  const encoder = new TextEncoder();
  return Object.entries(parts).every(([name, text]) => sha256(encoder.encode(text)) === digests[name]);
}

function fromHalf(bits) {
  const [exponent, mantissa] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent === 0 ? mantissa * 2 ** -24 : exponent === 31 ? (mantissa ? NaN : Infinity) : 2 ** (exponent - 15) * (1 + mantissa / 1024);
  return bits & 0x8000 ? -size : size;
}

function readRows(buffer, offset, size, rows) {
  const scales = new Float32Array(buffer, offset, rows);
  const integers = new Int8Array(buffer, offset + 4 * rows, size);
  const width = size / rows;
  return Float32Array.from(integers, (integer, k) => integer * scales[Math.floor(k / width)]);
}

/** Returns a function that makes tensors of constants; each part of the buffer is read once. @type {(buffer: ArrayBuffer) => (constant: any) => any} */
export function constantReader(buffer) {
  const read = new Map();
  const halves = Float32Array.from({ length: 2 ** 16 }, (_, bits) => fromHalf(bits));
  const valuesAt = ({ shape, offset, stored, rows }) => {
    const size = sizeOf(shape);
    if (stored === HALF_STORED) return Float32Array.from(new Uint16Array(buffer, offset, size), (bits) => halves[bits]);
    return stored === INT8_STORED ? readRows(buffer, offset, size, rows) : new Float32Array(buffer, offset, size);
  };
  return (constant) => {
    const { shape, type, values, offset } = constant;
    if (values) return tensor(shape, toTyped(values.map(Number), type), type);
    if (!read.has(offset)) read.set(offset, valuesAt(constant));
    return tensor(shape, read.get(offset), type);
  };
}
