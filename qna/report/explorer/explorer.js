// The page: what is chosen, what the pointer is on, and drawing both.

const kMean = -1;  // in the place of a head

class Explorer {
  constructor(root, ownsAddress) {
    this.root = root;
    this.ownsAddress = ownsAddress;  // the part behind # in the page's address says what is shown
    this.data = JSON.parse(root.querySelector('script').textContent);
    this.made = new Map();  // layers that were unpacked, by name
    this.maps = new Map();  // sums over windows, by layer and query
    this.view = this.find('.view');
    this.drawing = new Drawing(this.view, this.data.seen, bytesOf(this.data.palette));
    this.state = {
      layer: this.firstLayer(), head: kMean, query: 'mean', sum: false, box: 0, y: 0.5, x: 0.5};
    this.fillControls();
    this.listen();
    this.readAddress();
    this.showLayer();
  }

  find(selector) { return this.root.querySelector(selector); }

  // A detector's boxes; else a QnA layer of the second stage, whose windows are large enough to see.
  firstLayer() {
    if (this.data.decoder) return 'decoder';
    const learned = this.data.layers.filter((layer) => layer.kind === 'windows');
    const first = learned.find((layer) => layer.name.includes('stages.1')) || learned[0] ||
        this.data.layers[0];
    return first ? first.name : '';
  }

  get onDecoder() { return this.state.layer === 'decoder'; }

  get layer() {
    const name = this.state.layer;
    const data = this.data.layers.find((each) => each.name === name);
    if (!data) return null;
    if (!this.made.has(name)) {
      this.made.set(name, data.kind === 'windows' ? new WindowLayer(data) : new TokenLayer(data));
    }
    return this.made.get(name);
  }

  // ---- controls ----

  fillControls() {
    const {layers, decoder, classes, notes} = this.data;
    const select = this.find('select.layer');
    if (decoder) select.append(element('option', {value: 'decoder', textContent: 'decoder, last block'}));
    for (const {name, kind, height, width} of layers) {
      const brief = name.replace('stages.', '').replace('blocks.', '');
      select.append(element('option', {
        value: name,
        textContent: `${brief}   ${kind === 'windows' ? 'QnA' : 'self-attention'} ${height} × ${width}`}));
    }
    this.find('.classes').append(...classes.map(({name, probability}) => element('li', {}, [
      element('span', {className: 'name', textContent: name}),
      element('span', {className: 'number', textContent: percent(probability)}),
      this.bar(probability)])));
    this.find('.classes-part').hidden = !classes.length;
    this.fillBoxes();
    this.find('.notes').append(...notes.map((text) => element('li', {textContent: text})));
    this.find('.notes').hidden = !notes.length;
  }

  bar(part) {
    const bar = element('span', {className: 'bar'}, [element('span')]);
    bar.firstChild.style.width = `${100 * part}%`;
    return bar;
  }

  fillBoxes() {
    const boxes = this.data.decoder ? this.data.decoder.boxes : [];
    this.find('.boxes-part').hidden = !this.data.decoder;
    const list = this.find('.boxes');
    if (!boxes.length) list.append(element('p', {className: 'soft', textContent: 'none found'}));
    boxes.forEach(({name, score}, n) => {
      list.append(this.choice('box', n, [
        element('span', {className: 'name', textContent: name}),
        element('span', {className: 'number', textContent: percent(score)}), this.bar(score)]));
    });
  }

  // A button of a group of which one is chosen.
  choice(key, value, children) {
    const button = element('button', {type: 'button', className: key}, children);
    button.setAttribute('role', 'radio');
    button.dataset.value = value;
    button.addEventListener('click', () => {
      if (key === 'box' && !this.onDecoder) return this.choose({layer: 'decoder', box: value});
      this.choose({[key]: value});
    });
    return button;
  }

  markChoices() {
    for (const key of ['head', 'box']) {
      for (const button of this.root.querySelectorAll(`button.${key}`)) {
        const chosen = Number(button.dataset.value) === this.state[key] && (key === 'head' || this.onDecoder);
        button.setAttribute('aria-checked', String(chosen));
      }
    }
  }

  choose(change) {
    const layerBefore = this.state.layer;
    const queryBefore = this.state.query;
    Object.assign(this.state, change);
    if (this.state.layer !== layerBefore || this.state.query !== queryBefore) this.showLayer();
    else this.draw();
    this.writeAddress();
  }

  listen() {
    this.find('select.layer').addEventListener('change', (e) => this.choose({layer: e.target.value}));
    this.find('select.query').addEventListener('change', (e) => {
      const value = e.target.value;
      this.choose({query: /^\d+$/.test(value) ? Number(value) : value});
    });
    this.find('input.sum').addEventListener('change', (e) => this.choose({sum: e.target.checked}));
    const point = (event) => this.pointAt(event);
    this.view.addEventListener('pointermove', point);
    this.view.addEventListener('pointerdown', point);
    this.view.addEventListener('click', (event) => this.clickAt(event));
    this.view.addEventListener('keydown', (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.view);
    const {image} = this.drawing;
    if (!image.complete) image.addEventListener('load', () => this.draw());
    if (this.ownsAddress) {
      window.addEventListener('hashchange', () => {
        this.readAddress();
        this.showLayer();
      });
    }
  }

  // ---- where the pointer is, in parts of the picture's sides ----

  placeOf(event) {
    const box = this.view.getBoundingClientRect();
    return {y: clamp((event.clientY - box.top) / box.height, 0, 0.999999),
            x: clamp((event.clientX - box.left) / box.width, 0, 0.999999)};
  }

  pointAt(event) {
    Object.assign(this.state, this.placeOf(event));
    if (!this.waiting) {
      this.waiting = requestAnimationFrame(() => {
        this.waiting = 0;
        this.draw();
        this.writeAddress();
      });
    }
  }

  // The smallest box there.
  clickAt(event) {
    if (!this.onDecoder) return;
    const {y, x} = this.placeOf(event);
    const area = ({box: [left, top, right, bottom]}) => (right - left) * (bottom - top);
    const hit = this.data.decoder.boxes
        .filter(({box: [left, top, right, bottom]}) => x >= left && x <= right && y >= top && y <= bottom)
        .sort((a, b) => area(a) - area(b))[0];
    if (hit) this.choose({box: this.data.decoder.boxes.indexOf(hit)});
  }

  press(event) {
    const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (this.onDecoder) {
      const count = this.data.decoder.boxes.length;
      if (count) this.choose({box: (this.state.box + step[0] + step[1] + count) % count});
      return;
    }
    const {layer} = this;
    const window = this.window().map((at, axis) => clamp(at + step[axis], 0, layer.windows[axis] - 1));
    const middle = layer.middleOf(window);
    const [y, x] = [0, 1].map((axis) => clamp(
        middle[axis] * layer.stride / this.data.seen[axis], 0, 0.999999));
    this.choose({y, x});
  }

  placeOnMap({stride}) {
    return [this.state.y * this.data.seen[0] / stride, this.state.x * this.data.seen[1] / stride];
  }

  window() { return this.layer.windowAt(this.placeOnMap(this.layer)); }

  // ---- the address: what is shown can be sent to somebody, or opened by a program ----

  readAddress() {
    if (!this.ownsAddress) return;
    const said = new URLSearchParams(location.hash.slice(1));
    const layers = [...this.find('select.layer').options].map((option) => option.value);
    if (layers.includes(said.get('layer'))) this.state.layer = said.get('layer');
    for (const key of ['head', 'box', 'y', 'x']) {
      const number = parseFloat(said.get(key));
      if (Number.isFinite(number)) this.state[key] = number;
    }
    this.state.y = clamp(this.state.y, 0, 0.999999);
    this.state.x = clamp(this.state.x, 0, 0.999999);
    if (said.has('query')) {
      const query = said.get('query');
      this.state.query = /^\d+$/.test(query) ? Number(query) : query;
    }
    if (said.has('sum')) this.state.sum = said.get('sum') === '1';
  }

  writeAddress() {
    if (!this.ownsAddress || this.writing) return;
    // Browsers count how often it is changed.
    this.writing = setTimeout(() => {
      this.writing = 0;
      const {layer, head, query, sum, box, y, x} = this.state;
      const words = new URLSearchParams(this.onDecoder ? {layer, box} :
          {layer, head, query, sum: Number(sum), y: y.toFixed(4), x: x.toFixed(4)});
      try {
        history.replaceState(null, '', `#${words}`);
      } catch {
        // A page inside another may not have an address.
      }
    }, 400);
  }

  // ---- a layer ----

  // Puts a choice that the layer does not have right, and fills what depends on the layer.
  showLayer() {
    const {layer, state} = this;
    this.find('select.layer').value = state.layer;
    const select = this.find('select.query');
    select.replaceChildren();
    this.find('.heads-part').hidden = !layer;
    select.disabled = !layer || !layer.learned;
    if (layer) {
      const queries = layer.learned ?
          ['mean', ...Array(layer.queries).keys(), 'weight'] : ['mean'];
      const names = {mean: layer.learned ? 'mean' : 'each place', weight: 'value weights'};
      for (const query of queries) {
        select.append(element('option', {value: String(query), textContent: names[query] || String(query)}));
      }
      if (!queries.includes(state.query)) state.query = 'mean';
      if (!(state.head >= kMean && state.head < layer.heads && Number.isInteger(state.head))) state.head = kMean;
      select.value = String(state.query);
    }
    const boxes = this.data.decoder ? this.data.decoder.boxes.length : 0;
    if (!(state.box >= 0 && state.box < boxes && Number.isInteger(state.box))) state.box = 0;
    this.find('.about').textContent = this.about();
    this.find('.heads').replaceChildren();
    this.draw();
    // All windows of all heads take a moment: the picture comes first.
    setTimeout(() => this.showHeads(layer, state.query), 0);
  }

  about() {
    const {layer} = this;
    if (this.onDecoder) return 'The mean of the heads of the last decoder block. Click a box to see what it looks at.';
    if (!layer) return 'No layer of this network attends.';
    const heads = `${layer.heads} heads, map ${layer.height} × ${layer.width}`;
    if (!layer.learned) return `Self-attention in windows of ${layer.window.join(' × ')}, ${heads}`;
    const stride = Math.max(...layer.window_stride) > 1 ? ` with stride ${layer.window_stride[0]}` : '';
    return `QnA ${layer.kernel.join(' × ')}${stride}, ${layer.queries} ` +
        `${layer.queries === 1 ? 'query' : 'queries'}, ${heads}`;
  }

  // Of every head; made once.
  sums(layer = this.layer, query = this.state.query) {
    const key = `${layer.name} ${query}`;
    if (!this.maps.has(key)) this.maps.set(key, layer.sums(query));
    return this.maps.get(key);
  }

  sumOf(head) { return head === kMean ? meanOf(this.sums()) : this.sums()[head]; }

  showHeads(layer, query) {
    // The choice may have changed meanwhile.
    if (layer !== this.layer || query !== this.state.query) return;
    if (layer) {
      const all = [kMean, ...Array(layer.heads).keys()];
      this.find('.heads').replaceChildren(...all.map((head) => {
        const map = this.sumOf(head);
        const button = this.choice('head', head, [
          this.drawing.smallMap(map, layer, rangeOf(map)),
          element('span', {textContent: head === kMean ? 'mean' : String(head)})]);
        button.setAttribute('aria-label', head === kMean ? 'mean of the heads' : `head ${head}`);
        return button;
      }));
    }
    this.markChoices();
  }

  // ---- drawing ----

  draw() {
    const {layer} = this;
    this.find('input.sum').checked = this.state.sum;
    this.find('.toggle').hidden = !layer;
    this.find('.query-label').hidden = !layer;
    this.view.classList.toggle('grey', Boolean(layer && this.state.sum) || this.onDecoder);
    this.markChoices();
    const heat = this.drawing.clear('.heat');
    const cells = this.drawing.clear('.cells');
    this.find('.window-part').hidden = !layer && !this.onDecoder;
    if (this.onDecoder) this.drawDecoder(heat, cells);
    else if (layer) this.drawWindow(heat, cells);
  }

  windowValues(taps) {
    const {layer, state} = this;
    if (state.head !== kMean) return layer.values(taps, state.query, state.head);
    return meanOf(Array.from({length: layer.heads}, (_, head) => layer.values(taps, state.query, head)));
  }

  drawWindow(heat, cells) {
    const {layer, state} = this;
    const window = this.window();
    const taps = layer.taps(window);
    const values = this.windowValues(taps);
    const most = Math.max(...values.map(Math.abs)) || 1;
    if (state.sum) {
      const map = this.sumOf(state.head);
      const range = rangeOf(map);
      this.drawing.drawHeat(heat, map, layer, range);
      this.showScale(range, this.meaningOfSum(layer));
    } else {
      this.showScale([0, most], state.query === 'weight' ? 'weights of the values; blue: negative' :
          '1: all of this window’s attention');
    }
    this.drawing.drawTaps(cells, layer, taps, values, most, !state.sum);
    this.showNumbers(window, taps, values, most);
    this.showFacts(window, taps, values);
  }

  meaningOfSum(layer) {
    if (this.state.query === 'weight') return 'sums of the weights’ amounts';
    return `${rounded(layer.even)}: as much as each place gets if attention is even`;
  }

  showScale([low, high], meaning) {
    const signed = this.layer && !this.state.sum;
    const {palette} = this.drawing;
    const canvas = this.find('.legend canvas');
    const context = canvas.getContext('2d');
    context.clearRect(0, 0, 256, 1);
    for (let i = 0; i < 256; ++i) {
      context.fillStyle = signed ? shade(i, 255) : `rgb(${palette.subarray(3 * i, 3 * i + 3)})`;
      context.fillRect(i, 0, 1, 1);
    }
    this.find('.legend .low').textContent = rounded(low);
    this.find('.legend .high').textContent = rounded(high);
    this.find('.legend .means').textContent = meaning;
  }

  // The window by itself, large: the picture below it, the weights as numbers.
  showNumbers(window, taps, values, most) {
    const [rows, columns] = this.layer.shapeOf(window);
    const table = this.find('.lens table');
    const crowded = columns > 7;
    this.find('.window-title').textContent =
        (this.layer.learned ? 'Window' : 'What this place looks at') + (crowded ? ', in %' : '');
    this.find('.lens').hidden = false;
    this.find('.lens').classList.toggle('crowded', crowded);
    this.find('.lens').classList.toggle('packed', columns > 14);
    this.find('.lens').style.aspectRatio = `${columns} / ${rows}`;
    const text = (value) => columns > 14 ? '' : crowded ? (100 * value).toFixed(0) : value.toFixed(3);
    while (table.rows.length > rows) table.deleteRow(-1);
    for (let y = 0; y < rows; ++y) {
      const row = table.rows[y] || table.insertRow();
      while (row.cells.length > columns) row.deleteCell(-1);
      for (let x = 0; x < columns; ++x) {
        const cell = row.cells[x] || row.insertCell();
        const t = y * columns + x;
        const {inside, own} = taps[t];
        cell.textContent = inside ? text(values[t]) : '';
        cell.title = inside ? String(values[t]) : 'outside the map';
        cell.className = own ? 'own' : inside ? '' : 'outside';
        cell.style.backgroundColor = inside ? shade(values[t], most) : '';
      }
    }
    this.drawing.drawLens(this.find('.lens canvas'), this.layer, taps, columns);
  }

  showFacts(window, taps, values) {
    const {layer, state} = this;
    const inside = taps.filter((tap) => tap.inside);
    const pixels = (axis) => {
      const at = inside.map((tap) => tap[axis]);
      const last = this.data.seen[axis === 'y' ? 0 : 1] - 1;
      return `${Math.min(...at) * layer.stride} to ${Math.min(last, (Math.max(...at) + 1) * layer.stride - 1)}`;
    };
    const facts = [
      [layer.learned ? 'Window' : 'Place', `row ${window[0]}, column ${window[1]} of ${layer.windows.join(' × ')}`],
      ['Sees pixels', inside.length ? `x ${pixels('x')}, y ${pixels('y')}` : 'none'],
      ['Sum', values.reduce((sum, value) => sum + value, 0).toFixed(3)]];
    if (state.query !== 'weight') {
      // The number of places that an even attention of the same entropy would have.
      const entropy = values.reduce((sum, p) => sum - (p > 0 ? p * Math.log(p) : 0), 0);
      facts.push(['Spread', `as over ${Math.exp(entropy).toFixed(1)} of ${inside.length} places`]);
    }
    if (state.sum) {
      const [y, x] = this.placeOnMap(layer).map(Math.floor);
      facts.push(['Sum here', rounded(this.sumOf(state.head)[y * layer.width + x])]);
    }
    this.setFacts(facts);
  }

  setFacts(facts) {
    this.find('.facts').replaceChildren(...facts.flatMap(([label, value]) => [
      element('dt', {textContent: label}), element('dd', {textContent: value})]));
  }

  // ---- a detector ----

  drawDecoder(heat, cells) {
    const {decoder} = this.data;
    const {box: chosen} = this.state;
    this.find('.window-title').textContent = 'Decoder';
    this.find('.lens').hidden = true;
    if (!decoder.boxes.length) {
      this.setFacts([]);
      this.showScale([0, 1], '');
      return;
    }
    const box = decoder.boxes[chosen];
    // In multiples of an even look, which is easier to read than parts of 1.
    const map = unpack(box.attention).map((part) => part * decoder.height * decoder.width);
    const range = rangeOf(map);
    this.drawing.drawHeat(heat, map, decoder, range);
    this.showScale(range, '1: as much as each place gets if the decoder looks evenly');
    decoder.boxes.forEach((each, n) => { if (n !== chosen) this.drawing.drawBox(cells, each, false); });
    this.drawing.drawBox(cells, box, true);
    const [y, x] = this.placeOnMap(decoder).map(Math.floor);
    const [height, width] = this.data.seen;
    const [left, top, right, bottom] = box.box;
    this.setFacts([
      ['Object', `${box.name}, ${percent(box.score)}`],
      ['Box', `x ${Math.round(left * width)} to ${Math.round(right * width)}, ` +
          `y ${Math.round(top * height)} to ${Math.round(bottom * height)}`],
      ['Here', `${rounded(map[y * decoder.width + x])} times an even look`]]);
  }

}

document.querySelectorAll('.explorer').forEach((root, n) => { new Explorer(root, n === 0); });
