export function mountEmbedding(section, page) {
  return { uses: [], show(state, walk) {} };
}
