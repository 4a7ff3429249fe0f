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
