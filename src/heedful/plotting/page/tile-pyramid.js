// A map of too many weights to be sent: tiles of its levels, and exact rows, are asked for when they are shown.

const SIDE = 256; // cells of a tile
const MAX_TILES = 480; // that are kept: 32 MB
const MAX_ROWS = 64;
const MAX_REQUESTS = 6; // at a time

function keyOf({ level, x, y }) {
  return `${level},${x},${y}`;
}

/** Keeps the entries that were used last. @type {(map: Map<any, any>, key: any, value: any, size: number) => void} */
function keepLast(map, key, value, size) {
  map.delete(key);
  map.set(key, value);
  if (map.size > size) map.delete(map.keys().next().value);
}

/** The levels of a map behind a server, as WeightPyramid has them; a part that is not there yet is shown coarser. */
export class TilePyramid {
  largest = 1;
  exponent = 1; // of a shade, which is a fourth root: 4 has that of the weight
  onLoad = () => {};
  #tiles = new Map();
  #rows = new Map();
  #wanted = /** @type {any[]} */ ([]);
  #asked = new Set();
  #rowRequest = /** @type {Promise<any>} */ (Promise.resolve());
  #lastRow = -1;

  /**
   * @param {number[]} size rows and columns
   * @param {{ tile: (place: { level: number, x: number, y: number }) => Promise<Uint8Array>, row: (row: number) => Promise<Float32Array>, onError?: (error: any) => void }} source
   */
  constructor([rows, columns], { tile, row, onError = () => {} }) {
    this.readTile = tile;
    this.askRow = row;
    this.onError = onError;
    this.numLevels = 1 + Math.max(0, Math.ceil(Math.log2(Math.max(rows, columns) / SIDE)));
    this.#want([{ level: this.numLevels - 1, x: 0, y: 0 }]); // the whole map
  }

  /**
   * The parts of a level that show some of its cells: ranges of rows and columns, one for each pixel.
   * @param {number} level @param {number[][][]} ranges @returns {import("./types").MapPart[]}
   */
  parts(level, [downs, acrosses]) {
    const [[firstY, lastY], [firstX, lastX]] = [downs, acrosses].map((range) => [range[0][0], range.at(-1)[1] - 1].map((cell) => Math.floor(cell / SIDE)));
    const places = [];
    for (let y = firstY; y <= lastY; y += 1) for (let x = firstX; x <= lastX; x += 1) places.push({ level, x, y });
    this.#want(places.filter((place) => !this.#tiles.has(keyOf(place))));
    return places.flatMap((place) => this.#partOf(place));
  }

  /** The tile of a place, or of a coarser level the part of it. */
  #partOf({ level, x, y }) {
    for (let coarser = level; coarser < this.numLevels; coarser += 1) {
      const scale = 2 ** (coarser - level);
      const place = { level: coarser, x: Math.floor(x / scale), y: Math.floor(y / scale) };
      const values = this.#tiles.get(keyOf(place));
      if (!values) continue;
      keepLast(this.#tiles, keyOf(place), values, MAX_TILES);
      const side = SIDE / scale;
      const [top, left] = [y * side, x * side]; // in cells of the coarser level
      const start = (top - place.y * SIDE) * SIDE + left - place.x * SIDE;
      return [{ level: coarser, top, left, rows: side, columns: side, values: values.subarray(start), stride: SIDE }];
    }
    return [];
  }

  /** Replaces what is waited for: what was shown before is not needed any more. */
  #want(places) {
    this.#wanted = places.filter((place) => !this.#asked.has(keyOf(place)));
    while (this.#wanted.length && this.#asked.size < MAX_REQUESTS) this.#ask(this.#wanted.shift());
  }

  async #ask(place) {
    const key = keyOf(place);
    this.#asked.add(key);
    try {
      keepLast(this.#tiles, key, await this.readTile(place), MAX_TILES);
      this.onLoad();
    } catch (error) {
      this.#wanted = [];
      this.onError(error);
    } finally {
      this.#asked.delete(key);
      this.#want(this.#wanted);
    }
  }

  /** The exact weights of a row; null if another row was asked for meanwhile. @param {number} row @returns {Promise<Float32Array | null>} */
  async readRow(row) {
    this.#lastRow = row;
    if (!this.#rows.has(row)) {
      await this.#rowRequest; // one at a time: a pointer passes over rows faster than they come
      if (this.#lastRow !== row) return null;
      this.#rowRequest = this.askRow(row).then((weights) => keepLast(this.#rows, row, weights, MAX_ROWS), this.onError);
      await this.#rowRequest;
    }
    return this.#rows.get(row) ?? null;
  }
}
