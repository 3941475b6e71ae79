//! Export of a trained policy as an ONNX graph.
//!
//! ```text
//! obs [batch, obs_len] f32 ─▶ to f64 ─▶ (x − mean) · scale, clipped ─▶ to f32 ─▶ network ─▶ mean, or logits
//! Gaussian     mean [+ σ ε if sampled] ─▶ map to the bounds ─▶ clip ─▶ action [batch, n] f32
//! categorical  argmax, or one sample   ─▶ action [batch] i64
//! ```
//! The normaliser computes in f64, as in training. IR version 8, opset 17. The file holds no code, and its bytes depend
//! on the checkpoint only.
//!
//! The protocol-buffer messages of `onnx.proto` are encoded by hand: each field is a tag, a length and its
//! bytes.

use epo_core::ActionSpace;
use epo_nn::Head;

use crate::evaluate::ActionMode;
use crate::tensorboard::{bytes, varint};
use crate::trained::TrainedPolicy;

/// Values of `TensorProto.DataType`.
const FLOAT: u64 = 1;
const INT32: u64 = 6;
const INT64: u64 = 7;
const DOUBLE: u64 = 11;

/// Returns the bytes of an ONNX model. Inputs: `obs`. Outputs: `action`, and `mean` and `std` (Gaussian policies) or
/// `logits` (discrete actions).
///
/// The metadata has the task, the algorithm, the limit, the hash of the checkpoint and the version of this program.
pub fn export(trained: &TrainedPolicy, mode: ActionMode) -> Vec<u8> {
    let mut graph = Graph::default();
    let (spec, policy) = (trained.spec(), &trained.agent().policy);
    let mut x = "obs".to_owned();
    if let Some((mean, scale, clip)) = trained.normalizer().transform() {
        x = graph.cast(&x, "obs_f64", DOUBLE);
        let (mean, scale) =
            (graph.f64("obs_mean", &[mean.len()], mean), graph.f64("obs_scale", &[scale.len()], scale));
        x = graph.node("Sub", &[&x, &mean], "obs_centred");
        x = graph.node("Mul", &[&x, &scale], "obs_scaled");
        let (low, high) = (graph.f64("obs_low", &[], &[-clip]), graph.f64("obs_high", &[], &[clip]));
        x = graph.node("Clip", &[&x, &low, &high], "obs_clipped");
        x = graph.cast(&x, "obs_normalized", FLOAT);
    }
    let tensors: Vec<_> = policy.net().tensors();
    let layers = tensors.len() / 2;
    let output = if policy.head() == Head::Gaussian { "mean" } else { "logits" };
    for (l, pair) in tensors.chunks_exact(2).enumerate() {
        let params = policy.params();
        let [weight, bias] = [&pair[0], &pair[1]]
            .map(|t| graph.f32(&format!("policy.{}", t.name), &t.shape, &params[t.range.clone()]));
        let last = l + 1 == layers;
        let name = if last { output.to_owned() } else { format!("linear_{l}") };
        x = graph.node("Gemm", &[&x, &weight, &bias], &name);
        if !last {
            x = graph.node("Tanh", &[&x], &format!("hidden_{l}"));
        }
    }
    let (batch, n_out) = (Dim::Name("batch"), policy.net().outputs());
    graph.input("obs", FLOAT, &[batch, Dim::Size(spec.obs_len)]);
    match &spec.action {
        ActionSpace::Box { low, high } => {
            let std: Vec<f32> = policy.std().iter().map(|s| *s as f32).collect();
            let std = graph.f32("policy.std", &[std.len()], &std);
            graph.node("Identity", &[&std], "std");
            if mode == ActionMode::Sampled {
                let noise = graph.node("RandomNormalLike", &[&x], "noise");
                let step = graph.node("Mul", &[&noise, &std], "scaled_noise");
                x = graph.node("Add", &[&x, &step], "sampled");
            }
            let narrow = |values: Vec<f64>| values.into_iter().map(|v| v as f32).collect::<Vec<_>>();
            let pairs = || low.iter().zip(high);
            let half = narrow(pairs().map(|(l, h)| (h - l) / 2.0).collect());
            let centre = narrow(pairs().map(|(l, h)| (l + h) / 2.0).collect());
            let n = [half.len()];
            let (half, centre) =
                (graph.f32("action_half", &n, &half), graph.f32("action_centre", &n, &centre));
            x = graph.node("Mul", &[&x, &half], "action_scaled");
            x = graph.node("Add", &[&x, &centre], "action_unclipped");
            let (low, high) = (
                graph.f32("action_low", &n, &narrow(low.clone())),
                graph.f32("action_high", &n, &narrow(high.clone())),
            );
            x = graph.node("Max", &[&x, &low], "action_above_low"); // Clip takes scalars only
            graph.node("Min", &[&x, &high], "action");
            graph.output("action", FLOAT, &[batch, Dim::Size(n_out)]);
            graph.output("mean", FLOAT, &[batch, Dim::Size(n_out)]);
            graph.output("std", FLOAT, &[Dim::Size(n_out)]);
        }
        ActionSpace::Discrete { .. } => {
            match mode {
                ActionMode::Mean => {
                    graph.node_with("ArgMax", &[&x], "action", &[("axis", 1), ("keepdims", 0)]);
                }
                ActionMode::Sampled => {
                    let sample = graph.node_with("Multinomial", &[&x], "sample", &[("dtype", INT32)]);
                    let axis = graph.i64("axis", &[1], &[1]);
                    let sample = graph.node("Squeeze", &[&sample, &axis], "sample_flat");
                    graph.cast(&sample, "action", INT64);
                }
            }
            graph.output("action", INT64, &[batch]);
            graph.output("logits", FLOAT, &[batch, Dim::Size(n_out)]);
        }
    }
    let run = &trained.config().run;
    let metadata = [
        ("task", run.task.clone()),
        ("algo", run.algo.clone()),
        ("limit", run.limit.to_string()),
        ("seed", run.seed.to_string()),
        ("physics", run.physics.to_string()),
        ("hash", trained.hash().to_owned()),
        ("action_mode", mode.label().to_owned()),
        ("epo_version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    graph.model(&format!("{} on {}", run.algo, run.task), &metadata)
}

/// Length of a dimension: a fixed length, or a name for a dimension of any length.
#[derive(Clone, Copy)]
enum Dim {
    Size(usize),
    Name(&'static str),
}

/// A `GraphProto` in parts, each already encoded.
#[derive(Default)]
struct Graph {
    nodes: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl Graph {
    /// Adds an operation with one output, and returns the name of the output.
    fn node(&mut self, op: &str, inputs: &[&str], output: &str) -> String {
        self.node_with(op, inputs, output, &[])
    }

    /// The same with integer attributes.
    fn node_with(&mut self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, u64)]) -> String {
        let mut node = Vec::new();
        inputs.iter().for_each(|input| bytes(&mut node, 1, input.as_bytes()));
        bytes(&mut node, 2, output.as_bytes());
        bytes(&mut node, 3, output.as_bytes()); // the node has the name of its output
        bytes(&mut node, 4, op.as_bytes());
        for (name, value) in attributes {
            let mut attribute = Vec::new();
            bytes(&mut attribute, 1, name.as_bytes());
            integer(&mut attribute, 3, *value);
            integer(&mut attribute, 20, 2); // type INT
            bytes(&mut node, 5, &attribute);
        }
        self.nodes.push(node);
        output.to_owned()
    }

    fn cast(&mut self, input: &str, output: &str, to: u64) -> String {
        self.node_with("Cast", &[input], output, &[("to", to)])
    }

    fn f32(&mut self, name: &str, shape: &[usize], data: &[f32]) -> String {
        self.tensor(name, FLOAT, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    fn f64(&mut self, name: &str, shape: &[usize], data: &[f64]) -> String {
        self.tensor(name, DOUBLE, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    fn i64(&mut self, name: &str, shape: &[usize], data: &[i64]) -> String {
        self.tensor(name, INT64, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// Adds constant data and returns its name.
    fn tensor(&mut self, name: &str, kind: u64, shape: &[usize], raw: Vec<u8>) -> String {
        let mut tensor = Vec::new();
        shape.iter().for_each(|n| integer(&mut tensor, 1, *n as u64));
        integer(&mut tensor, 2, kind);
        bytes(&mut tensor, 8, name.as_bytes());
        bytes(&mut tensor, 9, &raw);
        self.tensors.push(tensor);
        name.to_owned()
    }

    fn input(&mut self, name: &str, kind: u64, shape: &[Dim]) {
        self.inputs.push(value_info(name, kind, shape));
    }

    fn output(&mut self, name: &str, kind: u64, shape: &[Dim]) {
        self.outputs.push(value_info(name, kind, shape));
    }

    /// Returns the bytes of a `ModelProto` with this graph.
    fn model(&self, name: &str, metadata: &[(&str, String)]) -> Vec<u8> {
        let mut graph = Vec::new();
        self.nodes.iter().for_each(|node| bytes(&mut graph, 1, node));
        bytes(&mut graph, 2, name.as_bytes());
        self.tensors.iter().for_each(|tensor| bytes(&mut graph, 5, tensor));
        self.inputs.iter().for_each(|input| bytes(&mut graph, 11, input));
        self.outputs.iter().for_each(|output| bytes(&mut graph, 12, output));
        let mut model = Vec::new();
        integer(&mut model, 1, 8); // IR version
        bytes(&mut model, 2, b"epo");
        bytes(&mut model, 3, env!("CARGO_PKG_VERSION").as_bytes());
        bytes(&mut model, 7, &graph);
        let mut opset = Vec::new();
        bytes(&mut opset, 1, b"");
        integer(&mut opset, 2, 17);
        bytes(&mut model, 8, &opset);
        for (key, value) in metadata {
            let mut entry = Vec::new();
            bytes(&mut entry, 1, key.as_bytes());
            bytes(&mut entry, 2, value.as_bytes());
            bytes(&mut model, 14, &entry);
        }
        model
    }
}

/// `ValueInfoProto { name, TypeProto { tensor_type { elem_type, shape } } }`
fn value_info(name: &str, kind: u64, shape: &[Dim]) -> Vec<u8> {
    let mut dims = Vec::new();
    for dim in shape {
        let mut one = Vec::new();
        match dim {
            Dim::Size(n) => integer(&mut one, 1, *n as u64),
            Dim::Name(name) => bytes(&mut one, 2, name.as_bytes()),
        }
        bytes(&mut dims, 1, &one);
    }
    let (mut tensor, mut value_type, mut info) = (Vec::new(), Vec::new(), Vec::new());
    integer(&mut tensor, 1, kind);
    bytes(&mut tensor, 2, &dims);
    bytes(&mut value_type, 1, &tensor);
    bytes(&mut info, 1, name.as_bytes());
    bytes(&mut info, 2, &value_type);
    info
}

/// Writes a field of type varint.
fn integer(out: &mut Vec<u8>, field: u8, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}
