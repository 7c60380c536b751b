export function mountBreak(section, page) {
  return { uses: [], show(state, walk) {} };
}
