// Which file the caption of a photo is, by the names alone: dog.txt or dog.jpg.txt belongs to dog.jpg.
const stem = (path) => path.replace(/\.[^./]*$/, "");

export function captionOf(photo, captions, photos) {
  const exact = captions.find((path) => stem(path) === photo);
  if (exact || photos.includes(stem(photo))) return exact;
  return captions.findLast((path) => stem(path) === stem(photo));
}

export function captionName(photo, photos) {
  const own = stem(photo).toLowerCase();
  return photos.filter((path) => stem(path).toLowerCase() === own).length === 1 ? `${stem(photo)}.txt` : `${photo}.txt`;
}

const PHOTO = /\.(jpe?g|jfif|a?png|webp|avif|bmp|tiff?|gif)$/i, CAPTION = /\.(txt|caption)$/i, COUNTED = /^\d+_.+$/;

export function roleOf(path) {
  const name = path.slice(path.lastIndexOf("/") + 1);
  if (name.startsWith(".")) return "";
  if (path.startsWith("masks/") || name === "metadata.jsonl") return "other";
  return PHOTO.test(name) ? "photo" : CAPTION.test(name) ? "caption" : "";
}

// The place of a dropped file in the data set. Of folders only those count that say something: 10_sks dog, and masks.
export function placeOf(path, taken) {
  const parts = path.split("/").map((part) => part.replace(/[\\:*?"<>|\x00-\x1f\x7f]/g, "_")).filter((part) => part && part !== "." && part !== "..");
  const folder = parts.findIndex((part, at) => at < parts.length - 1 && (part === "masks" || COUNTED.test(part)));
  let place = folder >= 0 ? (parts[folder] === "masks" ? parts.slice(folder) : [parts[folder], parts.at(-1)]).join("/") : parts.at(-1);
  const [, first, last] = /^(.*?)(\.[^./]*)?$/.exec(place);
  for (let number = 2; taken.has(place); number++) place = `${first}-${number}${last ?? ""}`;
  return place;
}

// The texts of a drop, by the photos that they belong to: by the paths that both came from (`came` has its photos by them), else by their places in the data set, for those that may.
export function paired(texts, came, photos, may) {
  const found = new Map(), left = new Map(texts), names = [...texts.keys()], own = [...came.keys()];
  for (const [path, photo] of came) {
    const of = captionOf(path, names, own);
    if (!of) continue;
    found.set(photo, texts.get(of));
    left.delete(of);
  }
  const placed = new Map([...left].map(([path, text]) => [placeOf(path, new Set()), text])), places = [...placed.keys()], paths = photos.map((photo) => photo.path);
  for (const photo of photos) {
    const of = !found.has(photo) && may(photo) && captionOf(photo.path, places, paths);
    if (of) found.set(photo, placed.get(of));
  }
  return found;
}

// The files of a drop, with those in its folders; of what cannot be opened the path alone
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const found = [];
  const walk = async (entry, above) => {
    const path = above + entry.name;
    if (entry.isFile) {
      found.push({ path, file: await new Promise((resolve) => entry.file(resolve, () => resolve(null))) });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve(null)));
      if (!some) found.push({ path, file: null });
      if (!some?.length) return;
      for (const each of some) await walk(each, `${path}/`);
    }
  };
  for (const entry of entries) await walk(entry, "");
  return found;
}
