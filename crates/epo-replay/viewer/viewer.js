// @ts-check
// The viewer of a replay. Three.js draws the scene, uPlot the time line; this file connects them to the data of the page.
// Frame 0 is the state after the reset; step t leads from frame t to frame t + 1, where its reward and cost are shown.
"use strict";
(() => {
  /** @typedef {{name: string, values: Float32Array}} Series */
  /** @typedef {{name: string, shape: string, size: number[], rgba: number[], body: number, pos: number[], quat: number[]}} Geom */

  const { THREE, OrbitControls } = EpoThree;
  const element = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const css = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- data -----------------------------------------------------------------------------------------------------

  const bytes = (/** @type {string} */ text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (/** @type {string} */ text) => new Float32Array(bytes(text).buffer);
  const series = (/** @type {any[]} */ list) => list.map((s) => ({ name: s.name, values: floats(s.values) }));

  /** One episode of one policy, with its numbers unpacked. */
  class Recording {
    constructor(/** @type {any} */ packed) {
      Object.assign(this, packed);
      /** @type {number} */ this.robot = packed.robot;
      const p = new Uint16Array(bytes(packed.positions).buffer);
      const q = new Int16Array(bytes(packed.turns).buffer);
      this.frames = packed.steps + 1;
      this.rewards = floats(packed.rewards);
      this.costs = floats(packed.costs);
      this.terms = series(packed.terms);
      this.values = series(packed.values);
      this.actions = { n: packed.actions.n, values: floats(packed.actions.values) };
      this.gauge = packed.gauge && { ...packed.gauge, values: floats(packed.gauge.values) };
      this.lidar = packed.lidar.map((/** @type {any} */ ring) => ({ ...ring, readings: bytes(ring.readings) }));
      const row = new Map(packed.moving.map((/** @type {number} */ body, /** @type {number} */ i) => [body, i]));
      const n = packed.moving.length;
      /** Pose of a body at a frame: [x, y, z, w, i, j, k]. */
      this.pose = (/** @type {number} */ frame, /** @type {number} */ body) => {
        const i = row.get(body);
        if (i === undefined) return packed.still[body];
        const at = frame * n + i;
        const xyz = packed.ranges[i].map((/** @type {number[]} */ [low, high], /** @type {number} */ axis) => low + (p[3 * at + axis] / 65535) * (high - low));
        return [...xyz, q[4 * at] / 32767, q[4 * at + 1] / 32767, q[4 * at + 2] / 32767, q[4 * at + 3] / 32767];
      };
      const running = (/** @type {Float32Array} */ steps) => {
        const sum = new Float64Array(steps.length + 1);
        steps.forEach((v, t) => (sum[t + 1] = sum[t] + v));
        return sum;
      };
      this.ret = running(this.rewards);
      this.paid = running(this.costs);
      /** Stretches of frames at which a cost was paid: [first, last]. @type {[number, number][]} */
      this.marks = [];
      this.costs.forEach((c, t) => {
        if (c <= 0) return;
        const last = this.marks[this.marks.length - 1];
        if (last && last[1] === t) last[1] = t + 1;
        else this.marks.push([t + 1, t + 1]);
      });
    }
    robotAt(/** @type {number} */ frame) {
      return this.pose(Math.max(0, Math.min(this.frames - 1, frame)), this.robot);
    }
  }

  const data = JSON.parse(element("data").textContent);
  const episodes = data.episodes.map((/** @type {any[]} */ sides) => sides.map((side) => new Recording(side)));

  // ---- state ----------------------------------------------------------------------------------------------------

  let sides = episodes[0];
  let frame = 0; // may be between two frames while playing
  let playing = false;
  let speed = 1;
  let camera = "orbit";
  let showLidar = true;
  let showHeat = false;
  const length = () => Math.max(...sides.map((/** @type {any} */ s) => s.steps));
  const frameOf = (/** @type {any} */ side) => Math.min(Math.floor(frame + 1e-6), side.frames - 1);

  // ---- scene ----------------------------------------------------------------------------------------------------

  const stage = element("stage");
  const quaternion = (/** @type {number[]} */ [w, x, y, z]) => new THREE.Quaternion(x, y, z, w);
  const colours = () => ({
    sky: css("--sky"), floor: dark.matches ? "#3c4350" : "#f7f8fa", grid: dark.matches ? "#4d5564" : "#dde2e8",
    path: dark.matches ? "#7fb2ff" : "#2f6fd0", cost: css("--cost"),
  });

  const WIDEST = 9; // metres; a wider scene is shown around the robot
  /** The bounding box of everything that is not a floor, over all frames: [x0, y0, x1, y1, height]. */
  function bounds(/** @type {any} */ side) {
    const box = [Infinity, Infinity, -Infinity, -Infinity, 0.3];
    const add = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ r) => {
      box[0] = Math.min(box[0], x - r); box[1] = Math.min(box[1], y - r);
      box[2] = Math.max(box[2], x + r); box[3] = Math.max(box[3], y + r);
    };
    for (const geom of side.geoms) {
      if (geom.shape === "plane" || geom.shape === "other") continue;
      const [x, y, z] = side.pose(0, geom.body);
      const r = Math.max(...geom.size);
      const wall = geom.shape === "box" && r > 1; // its length does not count
      if (r < 5) add(x + (geom.body ? 0 : geom.pos[0]), y + (geom.body ? 0 : geom.pos[1]), wall ? 0.3 : Math.min(r, 2));
      box[4] = Math.max(box[4], z + geom.pos[2] + 0.2);
    }
    for (let f = 0; f < side.frames; f += 5) add(side.robotAt(f)[0], side.robotAt(f)[1], 0.3);
    return box;
  }

  function geometry(/** @type {Geom} */ geom) {
    const [a, b, c] = geom.size;
    switch (geom.shape) {
      case "sphere": return new THREE.SphereGeometry(a, 32, 20);
      case "capsule": return new THREE.CapsuleGeometry(a, 2 * b, 8, 20).rotateX(Math.PI / 2);
      case "ellipsoid": return new THREE.SphereGeometry(1, 32, 20).scale(a, b, c);
      case "cylinder": return new THREE.CylinderGeometry(a, a, 2 * b, 40).rotateX(Math.PI / 2);
      case "box": return new THREE.BoxGeometry(2 * a, 2 * b, 2 * c);
      default: return null;
    }
  }

  /** The scene of one policy in three.js. */
  class Scene {
    constructor(/** @type {any} */ side) {
      this.side = side;
      this.scene = new THREE.Scene();
      this.bodies = side.still.map(() => this.scene.add(new THREE.Group()).children.at(-1));
      /** @type {any[]} */ this.robotMaterials = [];
      const floor = this.floor();
      this.scene.add(floor);
      for (const geom of side.geoms) {
        const shape = geometry(geom);
        if (!shape) continue;
        const [r, g, b, alpha] = geom.rgba;
        const colour = new THREE.Color().setRGB(r, g, b, THREE.SRGBColorSpace);
        const material = new THREE.MeshStandardMaterial({ color: colour, roughness: 0.75, metalness: 0, transparent: alpha < 1, opacity: alpha, depthWrite: alpha >= 1 });
        const mesh = new THREE.Mesh(shape, material);
        mesh.position.fromArray(geom.pos);
        mesh.quaternion.copy(quaternion(/** @type {any} */ (geom.quat)));
        mesh.castShadow = alpha >= 0.9;
        mesh.receiveShadow = alpha >= 0.9;
        this.bodies[geom.body].add(mesh);
        if (this.isRobot(geom)) this.robotMaterials.push(material);
      }
      this.scene.add(new THREE.HemisphereLight(0xffffff, 0xb0b8c4, 1.7));
      this.sun = new THREE.DirectionalLight(0xffffff, 2.2);
      this.sun.castShadow = true;
      this.sun.shadow.mapSize.set(1024, 1024);
      const reach = side.runs ? 4 : 5;
      Object.assign(this.sun.shadow.camera, { left: -reach, right: reach, top: reach, bottom: -reach, near: 0.5, far: 30 });
      this.sun.shadow.bias = -0.0005;
      this.scene.add(this.sun, this.sun.target);
      this.rings = side.lidar.map((/** @type {any} */ ring, /** @type {number} */ i) => this.ring(ring, i));
      this.path = this.ribbon(1);
      this.rest = this.ribbon(0.22);
      this.heat = null;
      this.recolour();
    }
    isRobot(/** @type {Geom} */ geom) {
      const { robot, geoms, runs } = this.side;
      if (runs) return geom.body !== 0;
      return geom.body === robot || ["left", "right", "rear"].includes(geom.name) && geoms.some((/** @type {Geom} */ g) => g.name === "front_bumper");
    }
    floor() {
      const plane = this.side.geoms.find((/** @type {Geom} */ g) => g.shape === "plane");
      const [a, b] = plane ? plane.size : [0, 0];
      this.tile = document.createElement("canvas");
      this.tile.width = this.tile.height = 128;
      this.texture = new THREE.CanvasTexture(this.tile);
      this.texture.colorSpace = THREE.SRGBColorSpace;
      this.texture.wrapS = this.texture.wrapT = THREE.RepeatWrapping;
      this.texture.anisotropy = 8;
      const far = 400; // a plane of size 0 is unbounded
      const [w, h] = [a > 0 && !this.side.runs ? 2 * a : far, b > 0 && !this.side.runs ? 2 * b : far];
      this.texture.repeat.set(w, h);
      this.texture.offset.set((w / 2) % 1 ? 0.5 : 0, (h / 2) % 1 ? 0.5 : 0);
      const mesh = new THREE.Mesh(new THREE.PlaneGeometry(w, h), new THREE.MeshStandardMaterial({ map: this.texture, roughness: 1 }));
      mesh.receiveShadow = true;
      if (plane) mesh.position.z = plane.pos[2] - 0.002;
      return mesh;
    }
    /** A lidar ring: 16 sectors around the robot, opaque where an object is near. */
    ring(/** @type {any} */ ring, /** @type {number} */ i) {
      const inner = 0.24 + 0.085 * i, outer = inner + 0.07, cuts = 4;
      const points = [], index = [];
      for (let s = 0; s < 16; s++)
        for (let k = 0; k <= cuts; k++) {
          const angle = ((s + 0.06 + (0.88 * k) / cuts) / 16) * 2 * Math.PI;
          for (const r of [inner, outer]) points.push(r * Math.cos(angle), r * Math.sin(angle), 0);
          const at = 2 * (s * (cuts + 1) + k);
          if (k < cuts) index.push(at, at + 1, at + 2, at + 1, at + 3, at + 2);
        }
      const shape = new THREE.BufferGeometry();
      shape.setAttribute("position", new THREE.Float32BufferAttribute(points, 3));
      shape.setAttribute("color", new THREE.Float32BufferAttribute(new Float32Array((points.length / 3) * 4), 4));
      shape.setIndex(index);
      const mesh = new THREE.Mesh(shape, new THREE.MeshBasicMaterial({ vertexColors: true, transparent: true, side: THREE.DoubleSide, depthWrite: false }));
      mesh.userData = { readings: ring.readings, colour: ringColour(this.side, ring.object), per: 2 * (cuts + 1) };
      mesh.renderOrder = 2;
      this.scene.add(mesh);
      return mesh;
    }
    /** The path of the robot on the floor, a flat ribbon whose colour says where a cost was paid. */
    ribbon(/** @type {number} */ opacity) {
      const { side } = this;
      const points = [], index = [];
      const half = side.runs ? 0.03 : 0.014;
      let direction = [1, 0];
      for (let f = 0; f < side.frames; f++) {
        const [x, y] = side.robotAt(f), [u, v] = side.robotAt(f + 1);
        const d = Math.hypot(u - x, v - y);
        if (d > 1e-5) direction = [(u - x) / d, (v - y) / d];
        points.push(x - half * direction[1], y + half * direction[0], 0, x + half * direction[1], y - half * direction[0], 0);
        if (f > 0) index.push(2 * f - 2, 2 * f - 1, 2 * f, 2 * f - 1, 2 * f + 1, 2 * f);
      }
      const shape = new THREE.BufferGeometry();
      shape.setAttribute("position", new THREE.Float32BufferAttribute(points, 3));
      shape.setAttribute("color", new THREE.Float32BufferAttribute(new Float32Array(points.length), 3));
      shape.setIndex(index);
      const mesh = new THREE.Mesh(shape, new THREE.MeshBasicMaterial({ vertexColors: true, transparent: true, opacity, side: THREE.DoubleSide, depthWrite: false }));
      mesh.position.z = 0.012;
      mesh.renderOrder = 1;
      mesh.frustumCulled = false;
      this.scene.add(mesh);
      return mesh;
    }
    recolour() {
      const c = colours();
      this.scene.background = new THREE.Color(c.sky);
      this.scene.fog = this.side.runs ? new THREE.Fog(c.sky, 12, 45) : null;
      const pen = /** @type {HTMLCanvasElement} */ (this.tile).getContext("2d");
      if (!pen) return;
      pen.fillStyle = c.floor; pen.fillRect(0, 0, 128, 128);
      pen.strokeStyle = c.grid; pen.lineWidth = 2; pen.strokeRect(0, 0, 128, 128);
      this.texture.needsUpdate = true;
      const [plain, paid] = [new THREE.Color(c.path), new THREE.Color(c.cost)];
      for (const mesh of [this.path, this.rest]) {
        const colour = mesh.geometry.attributes.color;
        for (let f = 0; f < this.side.frames; f++) {
          const { r, g, b } = f > 0 && this.side.costs[f - 1] > 0 ? paid : plain;
          colour.setXYZ(2 * f, r, g, b); colour.setXYZ(2 * f + 1, r, g, b);
        }
        colour.needsUpdate = true;
      }
      this.alarm = paid;
    }
    setHeat(/** @type {boolean} */ on) {
      if (on && !this.heat && data.map) {
        const { origin, size, cell } = data.map;
        const texture = new THREE.CanvasTexture(drawMap());
        texture.colorSpace = THREE.SRGBColorSpace;
        texture.magFilter = THREE.NearestFilter;
        const [w, h] = [size[0] * cell, size[1] * cell];
        this.heat = new THREE.Mesh(new THREE.PlaneGeometry(w, h), new THREE.MeshBasicMaterial({ map: texture, transparent: true, opacity: 0.85, depthWrite: false }));
        this.heat.position.set(origin[0] + w / 2, origin[1] + h / 2, 0.006);
        this.scene.add(this.heat);
      }
      if (this.heat) this.heat.visible = on;
    }
    /** Moves everything to a frame, which may be between two. */
    set(/** @type {number} */ at) {
      const { side } = this;
      const low = Math.min(Math.floor(at), side.frames - 1), high = Math.min(low + 1, side.frames - 1), share = Math.min(1, at - low);
      for (const body of new Set([0, ...side.moving, ...(this.placed ? [] : this.bodies.keys())])) {
        const a = side.pose(low, body), b = side.pose(high, body);
        const jumps = Math.hypot(b[0] - a[0], b[1] - a[1], b[2] - a[2]) > 0.4; // a goal that moved
        const s = jumps ? 0 : share;
        const group = this.bodies[body];
        group.position.set(a[0] + s * (b[0] - a[0]), a[1] + s * (b[1] - a[1]), a[2] + s * (b[2] - a[2]));
        group.quaternion.copy(quaternion(/** @type {any} */ (a.slice(3)))).slerp(quaternion(/** @type {any} */ (b.slice(3))), s);
      }
      this.placed = true;
      const robot = this.bodies[side.robot];
      const paid = low > 0 && side.costs[low - 1] > 0;
      for (const material of this.robotMaterials) material.emissive.copy(paid ? this.alarm : new THREE.Color(0)).multiplyScalar(0.9);
      const heading = yaw(side.pose(low, side.robot));
      this.rings.forEach((/** @type {any} */ ring) => {
        ring.visible = showLidar;
        if (!showLidar) return;
        ring.position.set(robot.position.x, robot.position.y, 0.03);
        ring.rotation.z = heading;
        const { readings, colour, per } = ring.userData;
        const target = ring.geometry.attributes.color;
        for (let v = 0; v < target.count; v++) {
          const reading = readings[16 * low + Math.floor(v / per)] / 255;
          target.setXYZW(v, colour.r, colour.g, colour.b, 0.07 + 0.9 * reading);
        }
        target.needsUpdate = true;
      });
      this.path.geometry.setDrawRange(0, 6 * low);
      this.rest.geometry.setDrawRange(6 * low, Infinity);
      this.sun.position.set(robot.position.x - 3, robot.position.y - 4, 9);
      this.sun.target.position.copy(robot.position);
      if (!side.runs) { this.sun.position.set(-3, -4, 9); this.sun.target.position.set(0, 0, 0); if (Math.abs(robot.position.y) > 5) { this.sun.position.y += robot.position.y; this.sun.target.position.y = robot.position.y; } }
    }
  }

  const yaw = (/** @type {number[]} */ [, , , w, x, y, z]) => Math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z));
  function ringColour(/** @type {any} */ side, /** @type {string} */ object) {
    const geom = side.geoms.find((/** @type {Geom} */ g) => g.name === object + "0");
    const [r, g, b] = geom ? geom.rgba : [0.5, 0.5, 0.5];
    return new THREE.Color().setRGB(r, g, b, THREE.SRGBColorSpace);
  }

  // ---- 3D view --------------------------------------------------------------------------------------------------

  /** Draws the scenes of all sides with three.js. */
  class View3d {
    constructor() {
      this.renderer = new THREE.WebGLRenderer({ antialias: true, preserveDrawingBuffer: true });
      this.renderer.shadowMap.enabled = true;
      this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
      stage.prepend(this.renderer.domElement);
      this.camera = new THREE.PerspectiveCamera(42, 1, 0.05, 300);
      this.camera.up.set(0, 0, 1);
      this.controls = new OrbitControls(this.camera, this.renderer.domElement);
      this.controls.maxPolarAngle = Math.PI / 2 - 0.02;
      this.controls.addEventListener("change", () => ask());
      this.load();
    }
    load() {
      this.scenes = sides.map((/** @type {any} */ side) => new Scene(side));
      this.place();
    }
    recolour() {
      this.scenes.forEach((/** @type {any} */ scene) => scene.recolour());
    }
    /** Puts the camera where the chosen view has it. */
    place() {
      const side = sides[0], box = bounds(side), [x, y, z] = side.robotAt(frameOf(side));
      const wide = Math.min(Math.max(1, 1.45 / this.aspect()), 1.8); // a narrow view needs more distance
      if (camera === "follow") {
        const d = (side.runs ? 3.6 : 2.6) * wide;
        const way = side.runs ? [0.15, -1, 0.3] : [0, -0.85, 0.62];
        this.controls.target.set(x, y, Math.max(z * 0.7, 0.1));
        this.camera.position.set(x + d * way[0], y + d * way[1], this.controls.target.z + d * way[2]);
      } else {
        const centre = side.runs ? [x, y] : [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
        const size = Math.min(Math.max(box[2] - box[0], box[3] - box[1]), WIDEST) * wide;
        if (size === WIDEST * wide) { centre[0] = x; centre[1] = y; }
        this.controls.target.set(centre[0], centre[1], 0);
        if (camera === "top") this.camera.position.set(centre[0], centre[1] - 0.001, 1.35 * size);
        else this.camera.position.set(centre[0], centre[1] - 0.95 * size, 0.8 * size);
      }
      this.last = [x, y, z];
      this.controls.update();
    }
    aspect() {
      const [w, h] = [stage.clientWidth, stage.clientHeight];
      return sides.length === 2 ? (w > h ? w / 2 / h : w / (h / 2)) : w / h;
    }
    draw() {
      const [w, h] = [stage.clientWidth, stage.clientHeight];
      const size = this.renderer.getSize(new THREE.Vector2());
      if (size.x !== w || size.y !== h) this.renderer.setSize(w, h, false);
      this.scenes.forEach((/** @type {any} */ scene) => { scene.set(Math.min(frame, scene.side.frames - 1)); scene.setHeat(showHeat); });
      const robots = this.scenes.map((/** @type {any} */ scene) => scene.bodies[scene.side.robot].position);
      if (camera === "follow") {
        const [x, y] = this.last ?? [robots[0].x, robots[0].y];
        const move = new THREE.Vector3(robots[0].x - x, robots[0].y - y, 0);
        this.camera.position.add(move);
        this.controls.target.add(move);
        this.last = [robots[0].x, robots[0].y, robots[0].z];
        this.camera.lookAt(this.controls.target);
      }
      this.camera.aspect = this.aspect();
      this.camera.updateProjectionMatrix();
      this.renderer.setScissorTest(true);
      const beside = w > h;
      this.scenes.forEach((/** @type {any} */ scene, /** @type {number} */ i) => {
        const n = this.scenes.length;
        const part = n === 1 ? [0, 0, w, h] : beside ? [(i * w) / 2, 0, w / 2, h] : [0, ((1 - i) * h) / 2, w, h / 2];
        const shift = camera === "follow" && i > 0 ? robots[i].clone().sub(robots[0]).setZ(0) : new THREE.Vector3();
        this.camera.position.add(shift);
        this.renderer.setViewport(...part);
        this.renderer.setScissor(...part);
        this.renderer.render(scene.scene, this.camera);
        this.camera.position.sub(shift);
      });
    }
  }

  // ---- 2D view: a browser without WebGL ------------------------------------------------------------------------

  /** Draws the scenes on a plain canvas: from above, or from the side if the robot runs. */
  class View2d {
    constructor() {
      this.canvas = document.createElement("canvas");
      stage.prepend(this.canvas);
      const word = element("word");
      word.hidden = false;
      word.textContent = "This browser has no WebGL, so the scene is drawn in two dimensions, " + (sides[0].runs ? "from the side." : "from above.");
      for (const id of ["orbit", "top"]) element(id).hidden = true;
    }
    load() {}
    place() {}
    recolour() {}
    draw() {
      const [w, h, ratio] = [stage.clientWidth, stage.clientHeight, Math.min(devicePixelRatio, 2)];
      this.canvas.width = w * ratio; this.canvas.height = h * ratio;
      const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
      const beside = w > h;
      sides.forEach((/** @type {any} */ side, /** @type {number} */ i) => {
        const part = sides.length === 1 ? [0, 0, w, h] : beside ? [(i * w) / 2, 0, w / 2, h] : [0, (i * h) / 2, w, h / 2];
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.save();
        pen.beginPath(); pen.rect(part[0], part[1], part[2], part[3]); pen.clip();
        this.side(pen, side, part);
        pen.restore();
      });
    }
    side(/** @type {CanvasRenderingContext2D} */ pen, /** @type {any} */ side, /** @type {number[]} */ [px, py, w, h]) {
      const c = colours(), f = frameOf(side), upright = side.runs;
      const [rx, ry] = side.robotAt(f), box = bounds(side);
      const whole = Math.max(box[2] - box[0], box[3] - box[1]);
      const follow = upright || camera === "follow" || whole > WIDEST;
      const extent = upright ? 3.2 : follow ? 3 : whole;
      const scale = Math.min(w, h) / extent;
      const centre = upright ? [rx, 0.9] : follow ? [rx, ry] : [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
      pen.fillStyle = c.floor; pen.fillRect(px, py, w, h);
      pen.translate(px + w / 2, py + h / 2);
      pen.scale(scale, -scale);
      pen.translate(-centre[0], -centre[1]);
      pen.strokeStyle = c.grid; pen.lineWidth = 1 / scale;
      const reach = Math.max(w, h) / scale;
      pen.beginPath();
      for (let k = Math.floor(centre[0] - reach); k <= centre[0] + reach; k++) { pen.moveTo(k, centre[1] - reach); pen.lineTo(k, centre[1] + reach); }
      if (!upright) for (let k = Math.floor(centre[1] - reach); k <= centre[1] + reach; k++) { pen.moveTo(centre[0] - reach, k); pen.lineTo(centre[0] + reach, k); }
      pen.stroke();
      if (showHeat && data.map && !upright) {
        const { origin, size, cell } = data.map;
        pen.save();
        pen.imageSmoothingEnabled = false;
        pen.translate(origin[0], origin[1] + size[1] * cell); pen.scale(1, -1);
        pen.drawImage(drawMap(), 0, 0, size[0] * cell, size[1] * cell);
        pen.restore();
      }
      if (upright) { pen.fillStyle = c.grid; pen.fillRect(centre[0] - reach, -reach, 2 * reach, reach); }
      else {
        pen.lineWidth = 0.028;
        for (let k = 1; k < side.frames; k++) {
          const [a, b] = side.robotAt(k - 1), [x, y] = side.robotAt(k);
          pen.globalAlpha = k <= f ? 1 : 0.2;
          pen.strokeStyle = side.costs[k - 1] > 0 ? c.cost : c.path;
          pen.beginPath(); pen.moveTo(a, b); pen.lineTo(x, y); pen.stroke();
        }
        pen.globalAlpha = 1;
        if (showLidar) this.rings(pen, side, f, rx, ry);
      }
      for (const geom of side.geoms) this.geom(pen, side, geom, f, upright);
      if (f > 0 && side.costs[f - 1] > 0 && !upright) { pen.strokeStyle = c.cost; pen.lineWidth = 0.03; pen.beginPath(); pen.arc(rx, ry, 0.2, 0, 7); pen.stroke(); }
    }
    rings(/** @type {CanvasRenderingContext2D} */ pen, /** @type {any} */ side, /** @type {number} */ f, /** @type {number} */ x, /** @type {number} */ y) {
      const heading = yaw(side.pose(f, side.robot));
      side.lidar.forEach((/** @type {any} */ ring, /** @type {number} */ i) => {
        pen.strokeStyle = "#" + ringColour(side, ring.object).getHexString();
        pen.lineWidth = 0.07;
        for (let s = 0; s < 16; s++) {
          const from = heading + ((s + 0.06) / 16) * 2 * Math.PI, to = heading + ((s + 0.94) / 16) * 2 * Math.PI;
          pen.globalAlpha = 0.07 + 0.9 * (ring.readings[16 * f + s] / 255);
          pen.beginPath(); pen.arc(x, y, 0.275 + 0.085 * i, from, to); pen.stroke();
        }
      });
      pen.globalAlpha = 1;
    }
    geom(/** @type {CanvasRenderingContext2D} */ pen, /** @type {any} */ side, /** @type {Geom} */ geom, /** @type {number} */ f, /** @type {boolean} */ upright) {
      if (geom.shape === "plane" || geom.shape === "other") return;
      const pose = side.pose(f, geom.body);
      const turn = quaternion(/** @type {any} */ (pose.slice(3)));
      const at = new THREE.Vector3(...geom.pos).applyQuaternion(turn).add(new THREE.Vector3(...pose.slice(0, 3)));
      turn.multiply(quaternion(/** @type {any} */ (geom.quat)));
      const flat = (/** @type {any} */ v) => (upright ? [v.x, v.z] : [v.x, v.y]);
      const [r, g, b, alpha] = geom.rgba, [a1, a2, a3] = geom.size;
      const colour = `rgb(${r * 255} ${g * 255} ${b * 255})`;
      pen.globalAlpha = alpha; pen.fillStyle = pen.strokeStyle = colour;
      const [x, y] = flat(at);
      const axis = flat(new THREE.Vector3(0, 0, 1).applyQuaternion(turn));
      pen.beginPath();
      if (geom.shape === "box") {
        const corners = [];
        for (const i of [-1, 1]) for (const j of [-1, 1]) for (const k of [-1, 1]) corners.push(flat(new THREE.Vector3(i * a1, j * a2, k * a3).applyQuaternion(turn).add(at)));
        hull(corners).forEach(([u, v], i) => (i ? pen.lineTo(u, v) : pen.moveTo(u, v)));
        pen.fill();
      } else if (geom.shape === "capsule" || (geom.shape === "cylinder" && Math.hypot(...axis) > 0.3)) {
        pen.lineCap = geom.shape === "capsule" ? "round" : "butt"; pen.lineWidth = 2 * a1;
        pen.moveTo(x - a2 * axis[0], y - a2 * axis[1]); pen.lineTo(x + a2 * axis[0], y + a2 * axis[1]); pen.stroke();
      } else { pen.arc(x, y, a1, 0, 7); pen.fill(); }
      pen.globalAlpha = 1;
    }
  }

  /** The convex hull of points in the plane. */
  function hull(/** @type {number[][]} */ points) {
    const sorted = [...points].sort((p, q) => p[0] - q[0] || p[1] - q[1]);
    const turn = (/** @type {number[]} */ o, /** @type {number[]} */ a, /** @type {number[]} */ b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
    const chain = (/** @type {number[][]} */ list) => {
      /** @type {number[][]} */ const out = [];
      for (const p of list) { while (out.length > 1 && turn(out[out.length - 2], out[out.length - 1], p) <= 0) out.pop(); out.push(p); }
      return out.slice(0, -1);
    };
    return [...chain(sorted), ...chain(sorted.reverse())];
  }

  /** The cost map as a small picture, one pixel per cell. */
  const noCost = !data.map || data.map.cost.every((/** @type {number} */ c) => c <= 0);
  function drawMap() {
    const { size, cost } = data.map;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = size;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const most = Math.max(...cost, 1e-9);
    cost.forEach((/** @type {number} */ c, /** @type {number} */ i) => {
      if (c <= 0) return;
      const share = Math.sqrt(c / most);
      pen.fillStyle = `hsl(${50 - 50 * share} 90% ${dark.matches ? 35 + 25 * share : 72 - 28 * share}%)`;
      pen.fillRect(i % size[0], size[1] - 1 - Math.floor(i / size[0]), 1, 1);
    });
    return canvas;
  }

  // ---- time line ------------------------------------------------------------------------------------------------

  const palette = () => (dark.matches ? ["#6cb6ff", "#f0a04b", "#57d19a", "#e58fd0", "#e6d35c", "#9aa4b2", "#ff8f8f", "#8be9fd"] : ["#0b62c4", "#c45a00", "#12805c", "#a3308b", "#8a7a00", "#59636e", "#b42318", "#0e7490"]);
  /** @type {{plot: any, now: HTMLElement, update: (f: number) => void}[]} */
  let lanes = [];
  const round = (/** @type {number} */ v) => (Number.isInteger(v) ? String(v) : Number.isFinite(v) ? v.toFixed(Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2).replace(/^-0\.00$/, "0.00") : "–");

  /** The charts of the episode: a title and named lines, each with one value per frame. */
  function charts() {
    const two = sides.length === 2;
    /** @type {{title: string, lines: {name: string, values: ArrayLike<number>, side: number, fill?: boolean, flat?: boolean}[]}[]} */
    const list = [];
    const shifted = (/** @type {Float32Array} */ steps) => [null, ...steps];
    const add = (/** @type {string} */ title, /** @type {(side: any) => {name: string, values: any, fill?: boolean, flat?: boolean}[]} */ of) => {
      const lines = sides.flatMap((/** @type {any} */ side, /** @type {number} */ i) => of(side).map((line) => ({ ...line, side: i, name: line.name + (two && !line.flat ? (i ? " (B)" : " (A)") : "") })));
      if (lines.length) list.push({ title, lines });
    };
    const limit = sides[0].about.limit;
    const paid = (/** @type {any} */ side) => side.terms.filter((/** @type {Series} */ t) => t.values.some((v) => v > 0));
    add("cost so far", (side) => [
      { name: "cost", values: side.paid },
      ...(side === sides[0] && Math.max(...sides.map((/** @type {any} */ s) => s.paid.at(-1))) > 0.3 * limit ? [{ name: "limit", values: new Array(length() + 1).fill(limit), flat: true }] : []),
    ]);
    add("cost by term", (side) => (paid(side).length ? paid(side) : [{ name: "none", values: side.costs }]).map((/** @type {any} */ t) => ({ name: t.name, values: shifted(t.values), fill: true })));
    add("reward", (side) => [{ name: "reward", values: shifted(side.rewards) }]);
    add("value", (side) => side.values.slice(0, 1));
    add("cost value", (side) => side.values.slice(1));
    const gauge = sides[0].gauge;
    if (gauge) add(`${gauge.name} (${gauge.unit})`, (side) => [
      { name: gauge.name, values: side.gauge.values },
      ...(gauge.limit !== null && side === sides[0] ? [{ name: "limit", values: new Array(length() + 1).fill(gauge.limit), flat: true }] : []),
    ]);
    add("action", (side) => Array.from({ length: Math.min(side.actions.n, 8) }, (_, k) => ({ name: `a${k + 1}`, values: [null, ...Array.from({ length: side.steps }, (_, t) => side.actions.values[t * side.actions.n + k])] })));
    return list;
  }

  function buildLanes() {
    const parent = element("lanes");
    parent.textContent = "";
    const ink = css("--soft"), grid = css("--line"), colour = palette();
    const x = Array.from({ length: length() + 1 }, (_, f) => f);
    const narrow = innerWidth <= 640;
    const all = charts();
    lanes = all.map(({ title, lines }, at) => {
      const lane = parent.appendChild(Object.assign(document.createElement("div"), { className: "lane" }));
      const legend = lane.appendChild(document.createElement("p"));
      legend.appendChild(Object.assign(document.createElement("b"), { textContent: title }));
      // a line has the colour of its policy, or of its number if a policy has several lines
      const number = lines.map((line, i) => lines.slice(0, i).filter((other) => other.side === line.side && !other.flat).length);
      const several = lines.some((line, i) => !line.flat && number[i] > 0);
      const stroke = (/** @type {any} */ line, /** @type {number} */ i) => {
        if (line.flat) return css("--cost");
        if (sides.length === 2 && !several) return colour[line.side];
        return title === "cost so far" ? colour[6] : colour[number[i] % colour.length];
      };
      const values = lines.map((line, i) => {
        const key = legend.appendChild(Object.assign(document.createElement("span"), { className: "key" + (line.flat || line.side ? " dashed" : "") }));
        key.style.color = stroke(line, i);
        key.append(line.name + " ");
        return key.appendChild(document.createElement("em"));
      });
      const last = at === all.length - 1;
      const padded = lines.map((line) => x.map((f) => (f < line.values.length ? line.values[f] : null)));
      const plot = new uPlot({
        width: parent.clientWidth, height: last ? 98 : 74, padding: [8, 22, last ? null : 6, 0], legend: { show: false },
        cursor: { drag: { x: false, y: false }, sync: { key: "epo" }, points: { show: false }, y: false },
        scales: {
          x: { time: false, range: [0, length()] },
          y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => (low === null || low === high ? [Math.min(0, low ?? 0), Math.max(1, high ?? 1)] : uPlot.rangeNum(low, high, 0.1, true)) },
        },
        axes: [
          // uPlot 1.6.16 draws no axis after one that is hidden, so the hidden ones have no size and no words instead
          { stroke: ink, grid: { stroke: grid, width: 0.5 }, ticks: { show: last, stroke: grid, width: 0.5 }, size: last ? 26 : 0, font: "11px system-ui", ...(last ? {} : { values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map(() => "") }) },
          { stroke: ink, grid: { stroke: grid, width: 0.5 }, ticks: { show: false }, size: narrow ? 46 : 58, font: "11px system-ui", space: 22 },
        ],
        series: [{}, ...lines.map((line, i) => ({
          label: line.name, stroke: stroke(line, i), width: line.flat ? 1 : 1.4, dash: line.flat ? [6, 4] : line.side ? [4, 3] : undefined,
          fill: line.fill ? stroke(line, i) + "44" : undefined, paths: line.fill ? uPlot.paths.stepped({ align: -1 }) : undefined, points: { show: false },
        }))],
      }, [x, ...padded], lane);
      const over = plot.over ?? plot.root.querySelector(".u-over");
      const now = over.appendChild(Object.assign(document.createElement("div"), { className: "now" }));
      const scrub = (/** @type {PointerEvent} */ event) => seek(plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x"));
      over.addEventListener("pointerdown", (/** @type {PointerEvent} */ e) => { over.setPointerCapture(e.pointerId); pause(); scrub(e); });
      over.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => { if (e.buttons) scrub(e); });
      return { plot, now, update: (/** @type {number} */ f) => {
        now.style.transform = `translateX(${plot.valToPos(f, "x")}px)`;
        values.forEach((value, i) => (value.textContent = round(padded[i][Math.min(Math.floor(f + 1e-6), padded[i].length - 1)] ?? NaN)));
      } };
    });
  }

  function buildMarks() {
    const parent = element("marks");
    parent.textContent = "";
    parent.className = sides.length === 2 ? "two" : "";
    sides.forEach((/** @type {any} */ side, /** @type {number} */ i) => {
      for (const [first, last] of side.marks) {
        const mark = parent.appendChild(Object.assign(document.createElement("i"), { className: i ? "second" : "first", title: `cost at step ${first}` + (last > first ? ` to ${last}` : "") }));
        mark.dataset.first = String(first);
        mark.style.left = `${((first - 0.5) / length()) * 100}%`;
        mark.style.width = `${((last - first + 1) / length()) * 100}%`;
      }
    });
  }

  // ---- playback -------------------------------------------------------------------------------------------------

  let asked = false;
  let before = 0;
  /** Asks for one drawing; nothing is drawn while nothing changes. */
  function ask() {
    if (asked) return;
    asked = true;
    requestAnimationFrame((time) => {
      asked = false;
      if (playing) {
        frame += (Math.min((time - before) / 1000, 0.1) * speed) / sides[0].dt;
        before = time;
        if (frame >= length()) { frame = length(); pause(); }
      }
      draw();
      if (playing) ask();
    });
  }
  function play() {
    if (frame >= length()) frame = 0;
    playing = true; before = performance.now();
    element("play").textContent = "Pause";
    ask();
  }
  function pause() {
    playing = false;
    element("play").textContent = "Play";
  }
  function seek(/** @type {number} */ to) {
    frame = Math.max(0, Math.min(length(), Math.round(to)));
    ask();
  }
  /** Jumps to the first frame of the next or previous stretch of costs, of any side. */
  function jump(/** @type {number} */ way) {
    const starts = [...new Set(sides.flatMap((/** @type {any} */ s) => s.marks.map((/** @type {number[]} */ m) => m[0])))].sort((a, b) => a - b);
    const found = way > 0 ? starts.find((f) => f > frame + 1e-6) : starts.filter((f) => f < frame - 1e-6).at(-1);
    if (found === undefined) return;
    pause();
    seek(found);
  }

  let drawn = 0;
  function draw() {
    view.draw();
    drawn += 1;
    lanes.forEach((lane) => lane.update(frame));
    element("frame").value = String(Math.round(frame));
    const f = Math.floor(frame + 1e-6);
    element("clock").textContent = `step ${f} of ${length()} · ${(f * sides[0].dt).toFixed(2)} s`;
    const hud = element("hud");
    hud.textContent = "";
    let paidNow = false;
    sides.forEach((/** @type {any} */ side, /** @type {number} */ i) => {
      const at = frameOf(side), cost = at > 0 ? side.costs[at - 1] : 0;
      const group = hud.appendChild(Object.assign(document.createElement("section"), { className: i ? (stage.clientWidth > stage.clientHeight ? "beside" : "below") : "" }));
      const line = group.appendChild(document.createElement("div"));
      const name = sides.length === 2 ? (i ? "B: " : "A: ") : "";
      line.textContent = `${name}return ${round(side.ret[at])} · cost ${round(side.paid[at])} of ${round(side.about.limit)}`;
      if (side.gauge?.limit) line.textContent += ` · ${round(side.gauge.values[at])} m/s of ${round(side.gauge.limit)}`;
      if (cost > 0) {
        paidNow = true;
        const terms = side.terms.filter((/** @type {Series} */ t) => t.values[at - 1] > 0).map((/** @type {Series} */ t) => t.name);
        group.appendChild(Object.assign(document.createElement("div"), { className: "paid", textContent: `${name}cost ${round(cost)}: ${terms.join(", ") || "paid"}` }));
      }
    });
    stage.classList.toggle("paid", paidNow);
  }

  // ---- page -----------------------------------------------------------------------------------------------------

  const epochs = (/** @type {any} */ side) => (side.about.checkpoint === 1 ? "1 epoch" : `${side.about.checkpoint} epochs`);
  function describe() {
    const a = sides[0].about;
    element("task").textContent = a.task;
    element("facts").textContent = sides.map((/** @type {any} */ s, /** @type {number} */ i) => `${sides.length === 2 ? (i ? "B: " : "A: ") : ""}${s.about.algo} · return ${round(s.about.return)} · cost ${round(s.about.cost)} of ${round(s.about.limit)} · ${s.steps} steps`).join("   |   ") + ` · seed ${a.seed}`;
    const what = element("what");
    what.textContent = "";
    sides.forEach((/** @type {any} */ s, /** @type {number} */ i) => {
      const name = sides.length === 2 ? (i ? "B: " : "A: ") : "";
      const whose = s.about.actions === "recorded" ? "The values are those of the critics after" : "Checkpoint after";
      const text = `${name}${s.about.what} Algorithm: ${s.about.algo}. ${whose} ${epochs(s)} (${s.about.hash}). Actions: ${s.about.policy}. Physics: ${s.about.physics}. Seed: ${s.about.seed}. The episode was ${s.about.ended} after ${s.steps} steps. Run folder: ${s.about.run}`;
      what.appendChild(Object.assign(document.createElement("p"), { textContent: text }));
    });
    const notice = element("notice"), { recorded, actions, command } = a;
    const exact = actions !== "policy";
    const strong = (/** @type {string} */ textContent) => Object.assign(document.createElement("b"), { textContent });
    const who = sides.length === 2 ? "A: " : "";
    notice.hidden = !recorded;
    notice.className = exact ? "exact" : "";
    if (recorded && exact) {
      notice.replaceChildren(strong(`${who}This is exactly the episode of training. `), /** @type {Record<string, string>} */ ({
        recorded: `Its actions were computed again with the recorded policies of its epochs. The values below are those of the critics after ${epochs(sides[0])}.`,
        checkpoint: `Its actions were computed again from the checkpoint after ${epochs(sides[0])}.`,
        retrained: "Its actions were computed again by repeating the training.",
      })[actions]);
    } else if (recorded) {
      notice.replaceChildren(
        strong(`${who}This is not exactly the recorded episode. `),
        `Recorded in training: return ${round(recorded.return)}, cost ${round(recorded.cost)}, ${recorded.length} steps. Replayed here: return ${round(a.return)}, cost ${round(a.cost)}, ${sides[0].steps} steps. The seed and the layout are the same; the actions are those of the policy after ${epochs(sides[0])}. `,
        command ? "This command repeats the recorded episode exactly: " : "Repeating the training gave another episode, so another version trained this run.",
        command ? Object.assign(document.createElement("code"), { textContent: command }) : "",
      );
    }
    const labels = element("sides");
    labels.textContent = "";
    stage.classList.toggle("beside", sides.length === 2 && stage.clientWidth > stage.clientHeight);
    stage.classList.toggle("below", sides.length === 2 && stage.clientWidth <= stage.clientHeight);
    if (sides.length === 2) sides.forEach((/** @type {any} */ s, /** @type {number} */ i) => {
      const label = labels.appendChild(Object.assign(document.createElement("span"), { textContent: `${i ? "B" : "A"}: ${s.about.algo}, ${s.about.run.split(/[\\/]/).pop()}` }));
      const beside = stage.clientWidth > stage.clientHeight;
      if (beside) label.style.left = i ? "calc(50% + .6rem)" : ".6rem";
      else { label.style.left = ".6rem"; label.style.bottom = i ? ".5rem" : "calc(50% + .3rem)"; }
    });
  }
  function press() {
    for (const id of ["orbit", "follow", "top"]) element(id).setAttribute("aria-pressed", String(camera === id));
    element("lidar").setAttribute("aria-pressed", String(showLidar));
    element("heat").setAttribute("aria-pressed", String(showHeat));
    element("lidar").hidden = !sides[0].lidar.length;
    element("heat").hidden = !data.map || noCost;
  }
  function look(/** @type {string} */ way) {
    camera = way;
    view.place();
    press();
    ask();
  }
  function toggleLidar() { showLidar = !showLidar; press(); ask(); }
  function toggleHeat() { showHeat = !showHeat && !!data.map && !noCost; press(); ask(); }
  function choose(/** @type {number} */ index) {
    sides = episodes[index];
    frame = 0;
    pause();
    view.load();
    rebuild();
  }
  function rebuild() {
    element("frame").max = String(length());
    describe(); press(); buildMarks(); buildLanes(); ask();
  }
  function showMap() {
    if (!data.map) return;
    const { episodes: n, origin, size, cell, cost } = data.map;
    element("map").hidden = false;
    const canvas = element("mapcanvas"), small = drawMap();
    canvas.hidden = noCost;
    if (noCost) {
      element("maptext").textContent = `No cost was incurred in ${n === 1 ? "1 episode" : `${n} episodes`} of ${sides[0].about.algo}.`;
      return;
    }
    const zoom = Math.max(1, Math.min(12, Math.floor(420 / Math.max(...size))));
    [canvas.width, canvas.height] = [size[0] * zoom, size[1] * zoom];
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, canvas.width, canvas.height);
    const total = cost.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    element("maptext").textContent = `Cost over ${n} evaluation episodes of ${sides[0].about.algo}: ${round(total)} in all, ${round(total / n)} per episode. x from ${round(origin[0])} to ${round(origin[0] + size[0] * cell)} m to the right, y from ${round(origin[1])} to ${round(origin[1] + size[1] * cell)} m upwards; a cell is ${round(cell)} m wide. Layouts differ from episode to episode. The button “Cost map” lays the map on the floor.`;
  }

  const wish = new URLSearchParams(location.hash.slice(1)); // #frame=120 begins there, #2d draws without WebGL
  addEventListener("hashchange", () => {
    const to = new URLSearchParams(location.hash.slice(1)).get("frame");
    if (to === null) return;
    pause();
    seek(Number(to) || 0);
  });
  let webgl = !wish.has("2d");
  const whole = bounds(sides[0]);
  if (sides[0].runs || Math.max(whole[2] - whole[0], whole[3] - whole[1]) > WIDEST) camera = "follow";
  /** @type {any} */ let view;
  try {
    if (!webgl) throw new Error("asked for");
    view = new View3d();
  } catch {
    webgl = false;
    view = new View2d();
  }
  episodes.forEach((/** @type {any[]} */ list, /** @type {number} */ i) => {
    const a = list[0].about;
    element("episode").appendChild(Object.assign(document.createElement("option"), { value: String(i), textContent: `${i + 1}: cost ${round(a.cost)}, return ${round(a.return)}, seed ${a.seed}` }));
  });
  element("choose").hidden = episodes.length < 2;
  element("episode").addEventListener("change", (/** @type {any} */ e) => choose(Number(e.target.value)));
  element("play").addEventListener("click", () => (playing ? pause() : play()));
  element("next").addEventListener("click", () => jump(1));
  element("back").addEventListener("click", () => jump(-1));
  element("frame").addEventListener("input", (/** @type {any} */ e) => { pause(); seek(Number(e.target.value)); });
  element("marks").addEventListener("pointerdown", (/** @type {PointerEvent} */ e) => { pause(); const box = element("marks").getBoundingClientRect(); seek(((e.clientX - box.left) / box.width) * length()); });
  element("speed").addEventListener("change", (/** @type {any} */ e) => (speed = Number(e.target.value)));
  element("orbit").addEventListener("click", () => look("orbit"));
  element("follow").addEventListener("click", () => look(camera === "follow" && !webgl ? "orbit" : "follow"));
  element("top").addEventListener("click", () => look("top"));
  element("lidar").addEventListener("click", toggleLidar);
  element("heat").addEventListener("click", toggleHeat);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /** @type {any} */ (event.target).tagName === "SELECT") return;
    const options = element("speed");
    const faster = (/** @type {number} */ by) => { options.selectedIndex = Math.max(0, Math.min(options.options.length - 1, options.selectedIndex + by)); speed = Number(options.value); };
    /** @type {Record<string, () => void>} */
    const keys = {
      " ": () => (playing ? pause() : play()), n: () => jump(1), p: () => jump(-1), f: () => look("follow"), o: () => look("orbit"), t: () => look("top"), l: toggleLidar, h: toggleHeat,
      arrowright: () => { pause(); seek(frame + (event.shiftKey ? 10 : 1)); }, arrowleft: () => { pause(); seek(frame - (event.shiftKey ? 10 : 1)); },
      home: () => { pause(); seek(0); }, end: () => { pause(); seek(length()); }, "+": () => faster(1), "-": () => faster(-1),
    };
    const act = keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  });
  dark.addEventListener("change", () => { view.recolour(); buildLanes(); showMap(); ask(); });
  let width = stage.clientWidth;
  new ResizeObserver(() => {
    if (stage.clientWidth !== width) { width = stage.clientWidth; describe(); buildLanes(); }
    ask();
  }).observe(stage);
  element("notes").replaceChildren(...data.notes.map((/** @type {string} */ note) => Object.assign(document.createElement("p"), { textContent: `Note: ${note}.` })));
  showMap();
  rebuild();
  seek(Number(wish.get("frame")) || 0);
  // for tests and for people who script the page
  Object.assign(window, { epoReplay: {
    seek, play, pause, jump, look, choose, get frame() { return frame; }, get drawn() { return drawn; }, get webgl() { return webgl; },
    get marks() { return sides.map((/** @type {any} */ s) => s.marks); }, robot: (/** @type {number} */ f) => sides[0].robotAt(f),
    draw: () => { draw(); return drawn; },
  } });
})();
