// A page that runs a model by itself.

import "./map-canvas.js";
import { ModelView } from "./model-view.js";

document.getElementById("model-place")?.replaceWith(new ModelView());
