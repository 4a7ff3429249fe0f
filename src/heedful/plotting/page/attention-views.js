// The maps of an explanation, and edits of a chosen cell or word.

/** The maps of all layers and heads; those that show how the output came about come first. @type {(explanation: any) => import("./types").LayerView[]} */
export function listViews({ layers, checks }) {
  return layers
    .flatMap((layer, index) => {
      const alike = layers.filter(({ type }) => type === layer.type);
      const number = alike.length > 1 ? [`layer ${alike.indexOf(layer) + 1}`] : [];
      return layer.weights.map((weights, head) => {
        const isSingle = layer.weights.length === 1;
        const caption = [layer.type, ...number, ...(isSingle ? [] : [`head ${head + 1}`])].join(", ");
        return { caption, layer, weights, checks: checks[index], head: isSingle ? undefined : head };
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

/** The same map of another explanation, if its tokens are the same. @type {(view: import("./types").LayerView, other: any) => import("./types").LayerView | undefined} */
export function matchingView({ layer: { path, queries, keys }, head }, other) {
  const isSame = (one, two) => JSON.stringify(one) === JSON.stringify(two);
  return listViews(other).find(({ layer, head: otherHead }) =>
    layer.path === path && otherHead === head && isSame(layer.queries, queries) && isSame(layer.keys, keys));
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
