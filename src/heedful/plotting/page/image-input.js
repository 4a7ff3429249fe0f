// An image as an input: a file, sent in base64.

import { create } from "./dom.js";

/** Its value is the file in base64; a value that is no text, such as a list of features, stays as it is. */
export class ImageInput extends HTMLElement {
  value = /** @type {any} */ (null);

  connectedCallback() {
    const field = Object.assign(create("input", ""), { type: "file", accept: "image/png, image/jpeg, image/webp" });
    field.addEventListener("change", async (event) => {
      event.stopPropagation(); // until the file is read
      const bytes = new Uint8Array(await field.files[0].arrayBuffer());
      this.value = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
      this.dispatchEvent(new CustomEvent("change", { bubbles: true }));
    });
    this.replaceChildren(create("label", "", "image ", field));
  }
}

customElements.define("image-input", ImageInput);
