export function mountBeam(section, page) {
  return { uses: [], show(state, walk) {} };
}
