// A page that translates by itself.

import "./map-canvas.js";
import { TextTranslator } from "./text-translator.js";

document.getElementById("model-place")?.replaceWith(new TextTranslator());
