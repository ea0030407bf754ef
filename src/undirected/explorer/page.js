/** The page: which view a payload asks for, and the frame around it. */

import { modelOf } from "./inference.js";
import { RemoteModel } from "./remote.js";
import { digits, frame, link } from "./dom.js";
import { learningPart } from "./learning.js";
import { ImageView } from "./image.js";
import { TableView } from "./table.js";
import { NetworkView } from "./network.js";

const VIEW_OF = { image: ImageView, table: TableView, network: NetworkView };
const LEDE = {
  image: "Paint what you know. The rest is what the model expects.",
  table: "Say what you know of a row. The bars are what the model expects of the rest.",
  network: "Messages travel until the variables agree.",
};

/**
 * Build the explorer of a payload inside `root`; returns the view. `keep` reads and writes the state
 * of the page: by default in the link.
 */
export function mount(root, payload, keep = link) {
  root.keep = keep;
  for (const column of payload.columns || []) {
    column.text = (x) =>
      digits(Number((x * column.scale + column.mean).toFixed(column.decimals)), 6);
  }
  const remote = payload.model.form === "remote";
  const model = remote ? new RemoteModel(payload.model) : modelOf(payload.model);
  root.classList.add("explore");
  root.dataset.theme = root.dataset.theme || "light";
  const view = new VIEW_OF[payload.view](root, model, payload);
  const learned = learningPart(root, model, payload);
  frame(root, {
    title: payload.title,
    lede: LEDE[payload.view],
    small: payload.small,
    view: view.view,
    more: learned,
    state: () => view.state(),
    tour: () => [...view.tour(), ...(learned ? [learned.tour] : [])],
    meter: view.runs?.frames.meter,
  });
  root.view = view;
  return view;
}
