export function mountDecoder(section, page) {
  return { uses: [], show(state, walk) {} };
}
