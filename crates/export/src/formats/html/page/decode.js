// Reads the block of data in the page: crates/export/src/formats/html/block.rs writes it.

/** Returns the header, and the columns by name as Float64Arrays. */
async function decode(text) {
  const deflated = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(deflated).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let at = 4 + length;
  for (const { name, delta, count, bytes: size } of header.columns) {
    columns[name] = decodeColumn(bytes, at, count, delta);
    at += size;
  }
  return { header, columns };
}

function fromBase64(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function decodeColumn(bytes, at, count, delta) {
  const values = new Float64Array(count);
  let previous = 0;
  for (let i = 0; i < count; i++) {
    // Numbers have up to 54 bits: the low 28 fit the fast integer operations, the rest is added as a double.
    let byte = bytes[at++], low = byte & 0x7f, shift = 7;
    while (byte >= 0x80 && shift < 28) {
      byte = bytes[at++];
      low |= (byte & 0x7f) << shift;
      shift += 7;
    }
    let value = low;
    for (let scale = 2 ** 28; byte >= 0x80; scale *= 128) {
      byte = bytes[at++];
      value += (byte & 0x7f) * scale;
    }
    if (delta) {
      // Zigzag: even numbers are positive, odd ones negative.
      const half = Math.floor(value / 2);
      previous += low & 1 ? -half - 1 : half;
      value = previous;
    }
    values[i] = value;
  }
  return values;
}
