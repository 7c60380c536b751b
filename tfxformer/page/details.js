export function mountDetails(section, page) {
  return { uses: [], show(state, walk) {} };
}
