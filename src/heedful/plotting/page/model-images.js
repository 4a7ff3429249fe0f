// What the page of a model that reads images has beside the others: only its page carries these modules.

import { ImageInput } from "./image-input.js";
import { hasImage, ImagePane } from "./image-pane.js";
import { BEAM, MODEL_PANES, VIEWS } from "./model-view.js";
import { OutputPane } from "./output-pane.js";

VIEWS.captioning = { input: ImageInput, settings: [BEAM], hasPrefix: true };
MODEL_PANES.splice(MODEL_PANES.findIndex(({ element }) => element === OutputPane) + 1, 0, { accepts: hasImage, element: ImagePane });
