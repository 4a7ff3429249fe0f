// What the inspector shows, as a value: it is the fragment of the address, so that a link is an experiment.

/** @type {(fragment: string, initial: import("./types").InspectorState) => import("./types").InspectorState} */
export function parseFragment(fragment, initial) {
  try {
    return { ...initial, ...JSON.parse(decodeURIComponent(fragment.slice(1)) || "{}") };
  } catch {
    return initial;
  }
}

/** @type {(state: import("./types").InspectorState) => string} */
export function formatFragment(state) {
  return `#${encodeURIComponent(JSON.stringify(state))}`;
}

/** A value with its former values. */
export class History {
  /** @param {any} value @param {(value: any) => void} onChange */
  constructor(value, onChange) {
    this.value = value;
    this.former = [];
    this.onChange = onChange;
  }

  /** Changes some fields; `isEdit`: undo goes back to the value before. @type {(changes: object, isEdit?: boolean) => void} */
  change(changes, isEdit = false) {
    if (isEdit) this.former.push(this.value);
    this.value = { ...this.value, ...changes };
    this.onChange(this.value);
  }

  undo() {
    if (this.former.length === 0) return;
    this.value = this.former.pop();
    this.onChange(this.value);
  }
}
