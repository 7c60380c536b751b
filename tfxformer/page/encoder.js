export function mountEncoder(section, page) {
  return { uses: [], show(state, walk) {} };
}
