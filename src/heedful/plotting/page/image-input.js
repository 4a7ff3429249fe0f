// An image as an input: a file that is chosen or dropped, sent in base64.

import { create } from "./dom.js";

/** Its value is the file in base64; a value that is no text, such as a list of features, stays as it is. */
export class ImageInput extends HTMLElement {
  value = /** @type {any} */ (null);

  connectedCallback() {
    const field = Object.assign(create("input", ""), { type: "file", accept: "image/png, image/jpeg, image/webp" });
    field.addEventListener("change", (event) => {
      event.stopPropagation(); // until the file is read
      this.#read(field.files[0]);
    });
    this.addEventListener("dragover", (event) => {
      event.preventDefault(); // it may be dropped
      this.classList.add("over");
    });
    this.addEventListener("dragleave", () => this.classList.remove("over"));
    this.addEventListener("drop", (event) => {
      event.preventDefault();
      this.classList.remove("over");
      this.#read(event.dataTransfer?.files[0]);
    });
    this.replaceChildren(create("label", "", "image: drop it here, or choose it ", field));
  }

  async #read(file) {
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    this.value = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    this.dispatchEvent(new CustomEvent("change", { bubbles: true }));
  }
}

customElements.define("image-input", ImageInput);
