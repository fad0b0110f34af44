// Days are those of the reader's zone, which the server learns by a cookie of this screen: an address that names a zone keeps that one.
import { onServer } from "../elements.js";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const known = document.cookie.split("; ").find((each) => each.startsWith("gangline_zone="))?.slice(14);
if (zone && known !== zone) {
  document.cookie = `gangline_zone=${zone};path=${onServer("/cost")};max-age=31536000;samesite=lax`;
  if (document.getElementById("costs")?.dataset.zone !== zone && !new URLSearchParams(location.search).has("zone")) location.reload();
}
