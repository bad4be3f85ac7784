// Drawing over the picture, and small pictures of maps. Nothing here knows what is chosen.

const percent = (number) => `${(100 * number).toFixed(number > 0 && number < 0.01 ? 1 : 0)} %`;
const rounded = (number) =>
    Math.abs(number) >= 100 ? number.toFixed(0) : Number(number.toPrecision(3)).toString();

function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// The colour of a window's weight.
function shade(value, most) {
  const alpha = (0.08 + 0.74 * Math.abs(value) / most).toFixed(3);
  return value < 0 ? `rgba(64, 132, 255, ${alpha})` : `rgba(255, 140, 26, ${alpha})`;
}

class Drawing {
  constructor(view, seen, palette) {
    this.view = view;  // the element with the picture and its canvases
    this.image = view.querySelector('img');
    this.seen = seen;
    this.palette = palette;
  }

  // A canvas of the view, empty and as large as it is shown.
  clear(selector) {
    const canvas = this.view.querySelector(selector);
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(this.view.clientWidth * scale);
    canvas.height = Math.round(this.view.clientHeight * scale);
    return canvas.getContext('2d');
  }

  // One pixel for each place.
  smallMap(map, {height, width}, [low, high]) {
    const canvas = element('canvas', {width, height});
    const context = canvas.getContext('2d');
    const image = context.createImageData(width, height);
    map.forEach((number, i) => {
      const n = high > low ? Math.round(255 * clamp((number - low) / (high - low), 0, 1)) : 0;
      image.data.set([...this.palette.subarray(3 * n, 3 * n + 3), 255], 4 * i);
    });
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // The map reaches beyond the picture where the stride does not divide its sides.
  drawHeat(context, map, layer, range) {
    const {canvas} = context;
    const [height, width] = this.seen;
    context.globalAlpha = 0.65;
    context.imageSmoothingQuality = 'high';
    context.drawImage(this.smallMap(map, layer, range), 0, 0,
        canvas.width * layer.width * layer.stride / width,
        canvas.height * layer.height * layer.stride / height);
  }

  // Where a place of the map lies on the canvas.
  rectangle(canvas, layer, y, x) {
    const [height, width] = this.seen;
    const [down, across] = [canvas.height * layer.stride / height, canvas.width * layer.stride / width];
    return [x * across, y * down, across, down];
  }

  // filled: their weights as colours, and the rest of the picture steps back; else only outlines.
  drawTaps(context, layer, taps, values, most, filled) {
    const {canvas} = context;
    const thin = Math.max(1, canvas.width / 700);
    const inside = taps.filter((tap) => tap.inside);
    if (!inside.length) return;
    if (filled) {
      context.fillStyle = 'rgba(0, 0, 0, 0.28)';
      context.fillRect(0, 0, canvas.width, canvas.height);
      for (const tap of inside) context.clearRect(...this.rectangle(canvas, layer, tap.y, tap.x));
      taps.forEach((tap, t) => {
        if (!tap.inside) return;
        context.fillStyle = shade(values[t], most);
        context.fillRect(...this.rectangle(canvas, layer, tap.y, tap.x));
      });
    }
    const outline = (list, width, colour) => {
      context.lineWidth = width;
      context.strokeStyle = colour;
      for (const tap of list) context.strokeRect(...this.rectangle(canvas, layer, tap.y, tap.x));
    };
    outline(inside, 3 * thin, 'rgba(0, 0, 0, 0.35)');
    outline(inside, thin, 'rgba(255, 255, 255, 0.85)');
    outline(inside.filter((tap) => tap.own), 3 * thin, '#ffffff');
  }

  // The picture under the taps of a window, large.
  drawLens(canvas, layer, taps, columns) {
    const side = 40;
    canvas.width = side * columns;
    canvas.height = side * taps.length / columns;
    const context = canvas.getContext('2d');
    const {naturalWidth, naturalHeight} = this.image;
    if (!naturalWidth) return;
    const [height, width] = this.seen;
    const {stride} = layer;
    taps.forEach(({y, x, inside}, t) => {
      if (!inside) return;
      context.drawImage(this.image, x * stride / width * naturalWidth, y * stride / height * naturalHeight,
          stride / width * naturalWidth, stride / height * naturalHeight,
          t % columns * side, Math.floor(t / columns) * side, side, side);
    });
  }

  drawBox(context, {name, score, box: [left, top, right, bottom]}, chosen) {
    const {width, height} = context.canvas;
    const thin = Math.max(1, width / 500);
    const corners = [left * width, top * height, (right - left) * width, (bottom - top) * height];
    context.lineWidth = chosen ? 4 * thin : 2 * thin;
    context.strokeStyle = 'rgba(0, 0, 0, 0.5)';
    context.strokeRect(...corners);
    context.lineWidth = chosen ? 2 * thin : thin;
    context.strokeStyle = chosen ? '#ff8c1a' : 'rgba(255, 255, 255, 0.8)';
    context.strokeRect(...corners);
    if (!chosen) return;
    const size = Math.max(12, 14 * (window.devicePixelRatio || 1));
    context.font = `600 ${size}px system-ui, sans-serif`;
    const label = `${name} ${percent(score)}`;
    const wide = context.measureText(label).width + size;
    const x = clamp(corners[0], 0, Math.max(0, width - wide));
    const y = Math.max(0, corners[1] - 1.5 * size);
    context.fillStyle = '#ff8c1a';
    context.fillRect(x, y, wide, 1.5 * size);
    context.fillStyle = '#1c1206';
    context.fillText(label, x + size / 2, y + 1.1 * size);
  }
}
