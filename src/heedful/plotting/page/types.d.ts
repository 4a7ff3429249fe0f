// The data of the elements. Those of pages come from Python, as JSON.

export interface GlimpseImage {
  size: number;
  pixels: number[]; // gray, row by row
  answer: string;
  wrong: boolean;
  probabilities: number[];
  glimpses: { boxes: number[][]; probabilities: number[] }[]; // boxes: [top, left, height, width]
  colors: string[]; // of the boxes
}

export interface ChartData {
  id: string;
  unit: string;
  curves: { type: string; columns: number[][] }[]; // step, seconds, FLOPs, value
}

export interface TokenRowData {
  name: string;
  tokens: { text: string; label: string; title?: string; above?: Node[]; below?: Node[] }[];
}

export interface MapView {
  row: number | null;
  column: number | null;
}

/** What a mechanism knows beside its weights: for each row, or for each cell. */
export interface Overlays {
  centers?: number[];
  half_width?: number[];
  coverage?: number[][];
  probabilities?: number[][];
  selected_position?: number[];
  expected_position?: number[];
  gates?: number[];
  copy_probs?: number[];
}

export interface MapData {
  source: string[];
  target: string[];
  weights?: ArrayLike<number>[]; // a row for each target word; not of maps that are read from a server
  names?: string[]; // of the rows and the columns
  note?: string; // below the map
  texts?: string[][]; // in the cells, instead of percentages
  notes?: string[]; // behind the rows
  form?: "map" | "lines";
  is_intra?: boolean; // source and target are the same words, whose links are arcs
  overlays?: Overlays;
  former?: number[][]; // weights before an edit
  isEdited?: (row: number, column: number) => boolean;
  pyramid?: MapPyramid; // instead of weights
  readRow?: (row: number) => ArrayLike<number> | null | Promise<ArrayLike<number> | null>; // exact weights
  marks?: number[][]; // row and column of cells to frame on a canvas
}

export interface MapLevel {
  rows: number;
  columns: number;
  values: Uint8Array;
}

/** Cells of a level of a map, from (top, left) on. */
export interface MapPart extends MapLevel {
  level: number;
  top: number;
  left: number;
  stride: number; // values between rows
}

/** A map at several resolutions: a cell of the next level is the largest of four. */
export interface MapPyramid {
  largest: number; // the weight that 255 stands for
  numLevels: number;
  exponent?: number; // of the shade of a byte
  parts(level: number, ranges: number[][][]): MapPart[];
  onLoad?: () => void; // called when parts have come
}

export interface Picture {
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  pixels: ImageData | null;
}

export interface ImageAttentionData {
  image: HTMLImageElement | null; // without one, cells are drawn
  size: number[]; // height and width
  words: string[];
  gates: number[] | null;
  weights: number[][][]; // a grid of cells for each word
}

export interface Edit {
  layer?: string;
  step?: number;
  head?: number;
  row?: number[];
  set?: Record<number, number>;
  scale?: Record<number, number>;
  alignment?: { type: string; temperature?: number; pattern?: string };
}

export interface InspectorState {
  model: string;
  input: any; // as the model reads it: a text, or a JSON value
  options: Record<string, any>; // of the request, such as beam_size; those that the model does not have are left out
  edits: Edit[];
  prefix: number[]; // token ids that the output begins with
  view: number; // index of the map
  row: number | null;
  column: number | null;
  other: { model: string, checkpoint: number | null } | null; // what is compared with
}

/** What one run of a graph in a page is asked for. */
export interface GraphContext {
  edits: Edit[];
  firstStep: number; // of the first query
  sites: Record<string, { type: string; is_default: boolean; num_heads: number; attends_to_source: boolean }>;
  record?: (path: string, weights: any) => void; // of attention
}

export interface LayerView {
  caption: string;
  layer: any; // of an explanation
  index: number; // of the layer
  trace?: string; // where weights are read that are too many to be sent
  weights: number[][] | null;
  pyramid?: any; // that reads them
  checks: any; // of the layer
  head: number | undefined; // of several
}

export interface TreeNode {
  parent: number | null;
  token: string | null; // null: the root
  token_id: number | null;
  log_prob: number;
  cumulative_log_prob: number;
  status: "continued" | "pruned" | "finished";
}

export interface PaneData {
  explanation: any; // the answer of /v1/explain
  model: any; // an entry of /v1/models
  state: InspectorState;
  former: any; // the explanation before the last edit, or null
  models: import("./source.js").ServerModels; // for what an explanation does not have
  canUndo: boolean;
  canRedo: boolean;
}

export interface PaneElement extends HTMLElement {
  data: PaneData;
  select?(state: InspectorState): void;
}

export interface Pane {
  accepts(explanation: any, model: any): boolean;
  element: new () => PaneElement;
  place?: "aside" | "more"; // beside, or below, the map
}

export interface InputEditor {
  accepts(model: any): boolean;
  element: new () => HTMLElement & { value: any };
}
