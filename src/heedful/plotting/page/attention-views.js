// The maps of an explanation, and edits of a chosen cell or word.

/** The maps of all layers and heads; those that show how the output came about come first. @type {(explanation: any) => import("./types").LayerView[]} */
export function listViews({ layers, checks, trace }) {
  return layers
    .flatMap((layer, index) => {
      const alike = layers.filter(({ type }) => type === layer.type);
      const number = alike.length > 1 ? [`layer ${alike.indexOf(layer) + 1}`] : [];
      const isSingle = layer.overlays.length === 1;
      return layer.overlays.map((_, head) => {
        const caption = [layer.type, ...number, ...(isSingle ? [] : [`head ${head + 1}`])].join(", ");
        const weights = layer.weights?.[head] ?? null; // too many: they are read by tiles of the trace
        return { caption, layer, index, trace, weights, checks: checks[index], head: isSingle ? undefined : head };
      });
    })
    .sort((one, two) => Number(two.layer.is_default) - Number(one.layer.is_default));
}

/** @type {(views: import("./types").LayerView[], state: import("./types").InspectorState) => import("./types").LayerView | undefined} */
export function chosenView(views, { view }) {
  return views[view] ?? views[0];
}

/** @type {(edit: import("./types").Edit, view: import("./types").LayerView) => boolean} */
function concerns({ layer: name, head }, view) {
  const { path, type } = view.layer;
  const pattern = (name ?? "*").split("*").map((part) => part.replace(/[.[\]]/g, "\\$&")).join(".*");
  const isLayer = name === "source" ? !/^decoder-(self|intra)/.test(type) : new RegExp(`^${pattern}$`).test(path);
  return isLayer && (head ?? view.head ?? 0) === (view.head ?? 0);
}

/** Which cells of a map are edited. @type {(view: import("./types").LayerView, edits: import("./types").Edit[]) => (row: number, column: number) => boolean} */
export function editedCells(view, edits) {
  const concerning = edits.filter((edit) => concerns(edit, view));
  return (row, column) => concerning.some(({ step, set, scale }) =>
    (step ?? view.layer.first_step + row) === view.layer.first_step + row && column in (set ?? scale ?? { [column]: 1 }));
}

/** The cells that edits of a step set. @type {(view: import("./types").LayerView, edits: import("./types").Edit[]) => number[][]} */
function placesSet(view, edits) {
  const { first_step: first, queries } = view.layer;
  return edits.filter((edit) => concerns(edit, view) && edit.set && edit.step !== undefined)
    .flatMap(({ step, set }) => Object.keys(set).map((column) => [step - first, +column])).filter(([row]) => row < queries.length);
}

/** What a map draws of a view: its weights, or where it reads them. @type {(view: import("./types").LayerView, state: import("./types").InspectorState, models: any) => import("./types").MapData} */
export function mapData(view, state, models) {
  const { layer, caption: note, weights, trace, index, head = 0 } = view;
  const data = { source: layer.keys, target: layer.queries, note };
  if (weights) return { ...data, weights };
  view.pyramid ??= models.pyramid(trace, index, head, layer.shape.slice(1));
  return { ...data, pyramid: view.pyramid, readRow: (row) => view.pyramid.readRow(row), marks: placesSet(view, state.edits) };
}

/** Whether two layers have the same words. @type {(one: any, other: any) => boolean} */
export function isSameMap(one, other) {
  return ["queries", "keys"].every((axis) => JSON.stringify(one[axis]) === JSON.stringify(other[axis]));
}

/** The map of another model that has the place of a view: its path and head, or its caption, or none. @type {(view: import("./types").LayerView, views: import("./types").LayerView[]) => import("./types").LayerView | undefined} */
export function likeView({ caption, layer: { path, type }, head }, views) {
  return views.find((other) => other.layer.path === path && other.head === head) ??
    views.find((other) => other.caption === caption) ?? views.find((other) => other.layer.type === type);
}

/** The same map of another explanation, if its tokens are the same. @type {(view: import("./types").LayerView, other: any) => import("./types").LayerView | undefined} */
export function matchingView({ layer, head }, other) {
  return listViews(other).find((one) => one.layer.path === layer.path && one.head === head && isSameMap(one.layer, layer));
}

/** All weight of a step on a word; null if no cell is chosen. @type {(view: import("./types").LayerView, state: import("./types").InspectorState) => import("./types").Edit | null} */
export function forceEdit({ layer, head }, { row, column }) {
  if (row === null || column === null) return null;
  const place = { ...(layer.path && { layer: layer.path }), ...(head !== undefined && { head }) };
  return { ...place, step: layer.first_step + row, set: { [column]: 1 } };
}

/** No layer attends to a word of the source. @type {(view: import("./types").LayerView, state: import("./types").InspectorState) => import("./types").Edit | null} */
export function removeEdit(_, { column }) {
  return column === null ? null : { layer: "source", scale: { [column]: 0 } };
}
