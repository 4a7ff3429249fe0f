// What the inspector shows, as a value: it is the fragment of the address, so that a link is an experiment.

/** Whether a value can stand where another one stands: null stands for a value of any kind. */
function isAlike(value, initial) {
  if (initial === null || value === null) return initial === null;
  return typeof value === typeof initial && Array.isArray(value) === Array.isArray(initial);
}

/** Fields that are unknown, or not of their kind, are left out. @type {(fragment: string, initial: any) => any} */
export function parseFragment(fragment, initial) {
  try {
    const fields = Object.entries(JSON.parse(decodeURIComponent(fragment.slice(1)) || "{}"));
    return { ...initial, ...Object.fromEntries(fields.filter(([name, value]) => name in initial && isAlike(value, initial[name]))) };
  } catch {
    return initial;
  }
}

/** @type {(state: object) => string} */
export function formatFragment(state) {
  return `#${encodeURIComponent(JSON.stringify(state))}`;
}

/** A value with its former values, and those that were undone. */
export class History {
  /** @param {any} value @param {(value: any) => void} onChange */
  constructor(value, onChange) {
    this.value = value;
    this.former = [];
    this.undone = [];
    this.onChange = onChange;
  }

  /** Changes some fields; `isEdit`: undo goes back to the value before. @type {(changes: object, isEdit?: boolean) => void} */
  change(changes, isEdit = false) {
    if (isEdit) this.former.push(this.value);
    this.undone = [];
    this.value = { ...this.value, ...changes };
    this.onChange(this.value);
  }

  undo() {
    this.#step(this.former, this.undone);
  }

  redo() {
    this.#step(this.undone, this.former);
  }

  /** The last of the former values that `accepts`; of what is typed quickly, not every value was explained. @param {(value: any) => boolean} accepts */
  latest(accepts) {
    return this.former.findLast(accepts);
  }

  #step(from, to) {
    if (from.length === 0) return;
    to.push(this.value);
    this.value = from.pop();
    this.onChange(this.value);
  }
}
