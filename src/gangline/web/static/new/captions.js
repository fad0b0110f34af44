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

// The files of a drop, with those in its folders
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const found = [];
  const walk = async (entry, above) => {
    if (entry.isFile) {
      found.push({ path: above + entry.name, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const each of some) await walk(each, `${above}${entry.name}/`);
    }
  };
  for (const entry of entries) await walk(entry, "");
  return found;
}
