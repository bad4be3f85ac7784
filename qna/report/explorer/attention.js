// What the layers of a network attend to, made again from what each softmax is taken of.
// qna/report/explorer.h says what the page holds.

function bytesOf(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

function floatsOf(text) {
  return new Float32Array(bytesOf(text).buffer);
}

// [rows, columns] or plain numbers, as explorer.cc packs them.
function unpack(packed) {
  if (packed.type === 'float32') return floatsOf(packed.data);
  const low = floatsOf(packed.low);
  const step = floatsOf(packed.step);
  const levels = new Uint16Array(bytesOf(packed.data).buffer);
  return Float32Array.from(levels, (level, i) => low[i % low.length] + step[i % low.length] * level);
}

const clamp = (number, least, most) => Math.max(least, Math.min(most, number));

// The softmax of scores[first], scores[first + 1], ... in place.
function softmax(scores, first, count) {
  let largest = -Infinity;
  for (let i = first; i < first + count; ++i) largest = Math.max(largest, scores[i]);
  let sum = 0;
  for (let i = first; i < first + count; ++i) sum += scores[i] = Math.exp(scores[i] - largest);
  for (let i = first; i < first + count; ++i) scores[i] /= sum;
}

// A QnA layer. A window is told by its row and column among the windows.
class WindowLayer {
  constructor(data) {
    Object.assign(this, data);
    this.scores = unpack(data.scores);
    this.bias = unpack(data.bias);
    this.scale = unpack(data.scale);
    this.columns = this.queries * this.heads;
    this.even = this.windows[0] * this.windows[1] / (this.height * this.width);
  }

  get learned() { return true; }

  // The window whose middle is nearest to a place of the map, given in fractions too.
  windowAt(place) {
    return [0, 1].map((axis) => {
      const middle = (this.kernel[axis] - 1) * this.dilation[axis] / 2 + 0.5 - this.padding[axis];
      const number = Math.round((place[axis] - middle) / this.window_stride[axis]);
      return clamp(number, 0, this.windows[axis] - 1);
    });
  }

  // And back: the middle of a window.
  middleOf(window) {
    return [0, 1].map((axis) => window[axis] * this.window_stride[axis] - this.padding[axis] +
        (this.kernel[axis] - 1) * this.dilation[axis] / 2 + 0.5);
  }

  // The places under the taps, [kernel]: {y, x, inside}; with the numbers of those inside the map.
  taps(window) {
    const taps = [];
    for (let ty = 0; ty < this.kernel[0]; ++ty)
      for (let tx = 0; tx < this.kernel[1]; ++tx) {
        const y = window[0] * this.window_stride[0] - this.padding[0] + ty * this.dilation[0];
        const x = window[1] * this.window_stride[1] - this.padding[1] + tx * this.dilation[1];
        taps.push({y, x, inside: y >= 0 && y < this.height && x >= 0 && x < this.width});
      }
    taps.inside = [...taps.keys()].filter((t) => taps[t].inside);
    return taps;
  }

  shapeOf() { return this.kernel; }

  // p of one query and head over the taps of a window, 0 outside the map.
  attention(taps, query, head) {
    const k = query * this.heads + head;
    const p = new Float32Array(taps.inside.length);
    taps.inside.forEach((t, n) => {
      const {y, x} = taps[t];
      p[n] = this.scores[(y * this.width + x) * this.columns + k] +
          (this.bias.length ? this.bias[t * this.columns + k] : 0);
    });
    softmax(p, 0, p.length);
    const all = new Float32Array(taps.length);
    taps.inside.forEach((t, n) => { all[t] = p[n]; });
    return all;
  }

  // What is shown for a choice of query: one of them, 'mean' or 'weight'; of one head.
  values(taps, query, head) {
    if (Number.isInteger(query)) return this.attention(taps, query, head);
    const all = new Float32Array(taps.length);
    for (let l = 0; l < this.queries; ++l) {
      const p = this.attention(taps, l, head);
      const k = l * this.heads + head;
      for (let t = 0; t < all.length; ++t) {
        const scale = !this.scale.length ? 1 : this.scale[t * this.columns + k];
        all[t] += query === 'weight' ? scale * p[t] : p[t] / this.queries;
      }
    }
    return all;
  }

  // For every head what the windows give each place, summed; weights count with either sign.
  sums(query) {
    const maps = Array.from({length: this.heads}, () => new Float32Array(this.height * this.width));
    for (let i = 0; i < this.windows[0]; ++i)
      for (let j = 0; j < this.windows[1]; ++j) {
        const taps = this.taps([i, j]);
        for (let head = 0; head < this.heads; ++head) {
          const values = this.values(taps, query, head);
          for (const t of taps.inside) {
            maps[head][taps[t].y * this.width + taps[t].x] += Math.abs(values[t]);
          }
        }
      }
    return maps;
  }
}

// Self-attention: a "window" is a query, told by its place; its taps are the keys it sees.
class TokenLayer {
  constructor(data) {
    Object.assign(this, data);
    this.queries = 1;
    this.query = unpack(data.queries_of);
    this.key = unpack(data.keys_of);
    this.bias = unpack(data.bias);
    this.windows = [this.height, this.width];
    this.even = 1;
  }

  get learned() { return false; }

  windowAt(place) {
    return [clamp(Math.floor(place[0]), 0, this.height - 1),
            clamp(Math.floor(place[1]), 0, this.width - 1)];
  }

  middleOf(window) { return [window[0] + 0.5, window[1] + 0.5]; }

  // The window that the query lies in, cut at the border of the map.
  range(window) {
    return [[window[0], this.window[0], this.height], [window[1], this.window[1], this.width]]
        .map(([at, side, all]) => {
          const first = Math.floor(at / side) * side;
          return [first, Math.min(first + side, all)];
        });
  }

  shapeOf(window) { return this.range(window).map(([first, end]) => end - first); }

  taps(window) {
    const [[top, bottom], [left, right]] = this.range(window);
    const taps = [];
    for (let y = top; y < bottom; ++y)
      for (let x = left; x < right; ++x) {
        taps.push({y, x, inside: true, own: y === window[0] && x === window[1]});
      }
    taps.at = window;
    return taps;
  }

  values(taps, _query, head) {
    const [row, column] = taps.at;
    const features = this.heads * this.dim;
    const q = (row * this.width + column) * features + head * this.dim;
    const sides = this.table.map((side) => 2 * side - 1);
    const table = head * sides[0] * sides[1];
    const p = new Float32Array(taps.length);
    taps.forEach(({y, x}, t) => {
      const k = (y * this.width + x) * features + head * this.dim;
      let sum = 0;
      for (let d = 0; d < this.dim; ++d) sum += this.query[q + d] * this.key[k + d];
      const dy = this.table[0] - 1 + y - row;
      const dx = this.table[1] - 1 + x - column;
      p[t] = sum + this.bias[table + dy * sides[1] + dx];
    });
    softmax(p, 0, p.length);
    return p;
  }

  sums() {
    const maps = Array.from({length: this.heads}, () => new Float32Array(this.height * this.width));
    for (let y = 0; y < this.height; ++y)
      for (let x = 0; x < this.width; ++x) {
        const taps = this.taps([y, x]);
        for (let head = 0; head < this.heads; ++head) {
          const p = this.values(taps, 0, head);
          taps.forEach((tap, t) => { maps[head][tap.y * this.width + tap.x] += p[t]; });
        }
      }
    return maps;
  }
}

// The mean of arrays of one length.
function meanOf(arrays) {
  const mean = new Float32Array(arrays[0].length);
  for (const each of arrays) each.forEach((number, i) => { mean[i] += number / arrays.length; });
  return mean;
}

// The numbers of the first and the last colour, without one in a hundred at either end, as on the
// sheets of `qna attend`.
function rangeOf(numbers) {
  const sorted = Float32Array.from(numbers).sort();
  const cut = Math.floor(sorted.length * 0.01);
  return [sorted[cut], sorted[sorted.length - 1 - cut]];
}
