use super::*;
use crate::reference::{f64s, mlp as reference};
use epo_core::Purpose;

/// Widths around 8 and 16, the vectors of AVX2 and AVX-512, and the network of the benchmark.
const SHAPES: [&[usize]; 7] =
    [&[1, 1], &[3, 2], &[5, 7, 3], &[9, 16, 8, 1], &[4, 17, 33, 9], &[60, 64, 64, 2], &[13, 130, 70, 24]];

fn stream(index: u32) -> Stream {
    Stream::new(7, Purpose::Random, index)
}

fn normals(n: usize, index: u32) -> Vec<f32> {
    let mut stream = stream(index);
    (0..n).map(|_| stream.normal() as f32).collect()
}

fn nets() -> impl Iterator<Item = Mlp> {
    let make = |arch| move |sizes: &&[usize]| Mlp::with_arch(sizes, 0, &mut stream(1), arch);
    SHAPES.iter().map(make(Arch::new())).chain(SHAPES.iter().map(make(Arch::Scalar)))
}

/// This test fails if a bias or the last column is missing, if the output has a tanh, or if a chunk is misplaced.
#[test]
fn forward_is_the_definition() {
    for net in nets() {
        let sizes = net.sizes();
        let params = f64s(net.params());
        let mut ws = net.workspace(1);
        for rows in [1, 6, 64, 65, 130] {
            let x = normals(rows * sizes[0], 2);
            ws.load(&x);
            let y = net.forward(&mut ws).chunks_exact(net.outputs());
            assert_eq!(y.len(), rows);
            for (i, (x, y)) in x.chunks_exact(sizes[0]).zip(y).enumerate() {
                for (got, want) in y.iter().zip(reference(&sizes, &params, x)) {
                    let error = (f64::from(*got) - want).abs();
                    assert!(error < 2e-6, "{sizes:?} row {i} of {rows}: {got} for {want}");
                }
            }
        }
    }
}

/// This test fails if the order of a sum depends on the tile, or if a row is read from its neighbour.
#[test]
fn the_bits_of_a_row_do_not_depend_on_the_batch() {
    for net in nets() {
        let (n_in, n_out) = (net.inputs(), net.outputs());
        let mut ws = net.workspace(64);
        let x = normals(131 * n_in, 3);
        let mut one = vec![0.0; 131 * n_out];
        for (x, y) in x.chunks_exact(n_in).zip(one.chunks_exact_mut(n_out)) {
            net.forward_one(x, &mut ws, y);
        }
        for rows in [1, 2, 5, 7, 63, 64, 131] {
            ws.load(&x[..rows * n_in]);
            assert_eq!(net.forward(&mut ws), &one[..rows * n_out], "{:?}, batch of {rows}", net.sizes());
        }
        // at other positions: in reverse order
        let index: Vec<u32> = (0..131).rev().collect();
        ws.gather(&x, &index);
        let y = net.forward(&mut ws);
        for (i, y) in y.chunks_exact(n_out).enumerate() {
            assert_eq!(y, &one[(130 - i) * n_out..][..n_out], "{:?}, reversed row {i}", net.sizes());
        }
        let mut predicted = vec![0.0; one.len()];
        net.predict(&x, &mut ws, &mut predicted);
        assert_eq!(predicted, one, "{:?}, predict", net.sizes());
    }
}

/// The gradients are compared with central differences of the f64 reference. This test fails if 1 − h² or the gradient
/// of a bias is missing. It also fails if a weight is transposed or a chunk overwrites another.
#[test]
fn gradients_agree_with_finite_differences() {
    for net in nets().filter(|net| net.params().len() < 3000) {
        let sizes = net.sizes();
        let mut ws = net.workspace(1);
        for rows in [1, 9, 70] {
            let (x, c) = (normals(rows * sizes[0], 4), normals(rows * net.outputs(), 5));
            ws.load(&x);
            net.forward(&mut ws);
            let mut grad = vec![f32::NAN; net.params().len()];
            net.backward(&mut ws, &c, &mut grad);
            let loss = |params: &[f64]| -> f64 {
                let y = x.chunks_exact(sizes[0]).flat_map(|x| reference(&sizes, params, x));
                y.zip(&c).map(|(y, c)| y * f64::from(*c)).sum()
            };
            let mut params = f64s(net.params());
            assert!(grad.iter().map(|g| g.abs()).fold(0.0, f32::max) > 1e-3, "the gradient is not trivial");
            for i in (0..params.len()).step_by(1 + params.len() / 300) {
                let old = params[i];
                params[i] = old + 1e-5;
                let up = loss(&params);
                params[i] = old - 1e-5;
                let down = loss(&params);
                params[i] = old;
                let want = (up - down) / 2e-5;
                let error = (f64::from(grad[i]) - want).abs();
                assert!(error < 3e-5, "{sizes:?}, {rows} rows, ∂/∂θ_{i}: {} for {want}", grad[i]);
            }
        }
    }
}

/// `cᵀ(Jv)` from `jvp` must equal `(Jᵀc)ᵀv` from `backward`. This test fails if a tangent does not reach the next
/// layer, or if the direction of a bias or 1 − h² is missing.
#[test]
fn jvp_is_the_adjoint_of_backward() {
    for net in nets() {
        let mut ws = net.workspace(1);
        for rows in [3, 64, 100] {
            let (x, c) = (normals(rows * net.inputs(), 6), normals(rows * net.outputs(), 7));
            let v = normals(net.params().len(), 8);
            ws.load(&x);
            net.forward(&mut ws);
            let (mut jv, mut grad) = (vec![0.0; c.len()], vec![0.0; v.len()]);
            net.jvp(&mut ws, &v, &mut jv);
            net.backward(&mut ws, &c, &mut grad);
            let dot = |a: &[f32], b: &[f32]| -> (f64, f64) {
                let terms = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
                terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
            };
            let ((a, size), (b, _)) = (dot(&jv, &c), dot(&grad, &v));
            assert!((a - b).abs() < 1e-6 * size, "{:?}, {rows} rows: {a} and {b}", net.sizes());
            assert!(a.abs() > 1e-3 * size, "the product is not trivial");
        }
    }
}

/// This test fails if padding or scratch space affects a later result.
#[test]
fn results_do_not_depend_on_earlier_contents_of_a_workspace() {
    for net in nets() {
        let x = normals(7 * net.inputs(), 9);
        let c = normals(7 * net.outputs(), 10);
        let run = |ws: &mut Workspace| {
            let mut grad = vec![0.0; net.params().len()];
            ws.load(&x);
            let y = net.forward(ws).to_vec();
            let mut other = vec![0.0; 3 * net.outputs()];
            net.predict(&x[..3 * net.inputs()], ws, &mut other); // keeps the loaded rows
            net.backward(ws, &c, &mut grad);
            (y, grad)
        };
        let fresh = run(&mut net.workspace(7));
        let mut used = net.workspace(200);
        used.load(&vec![1e3; 200 * net.inputs()]);
        net.forward(&mut used);
        net.backward(&mut used, &vec![1e3; 200 * net.outputs()], &mut vec![0.0; net.params().len()]);
        assert_eq!(run(&mut used), fresh, "{:?}", net.sizes());
    }
}

/// This test fails if the copies of the weights are not updated.
#[test]
fn new_parameters_are_used_at_once() {
    let mut net = Mlp::new(&[3, 20, 2], &mut stream(1));
    let other = Mlp::new(&[3, 20, 2], &mut stream(2));
    let x = normals(30, 11);
    let run = |net: &Mlp| {
        let (mut ws, mut grad) = (net.workspace(10), vec![0.0; net.params().len()]);
        ws.load(&x);
        let y = net.forward(&mut ws).to_vec();
        net.backward(&mut ws, &y, &mut grad);
        (y, grad)
    };
    assert_ne!(run(&net), run(&other));
    net.set_params(other.params());
    assert_eq!(run(&net), run(&other));
}

/// This test fails if the bound is 1/fan_in or √3/√fan_in, or if biases are zero.
#[test]
fn initial_values_are_uniform_in_their_range() {
    let net = Mlp::new(&[60, 64, 64, 2], &mut stream(12));
    let mut end = 0;
    for Tensor { name, shape, range } in net.tensors() {
        assert_eq!(range.start, end, "{name} follows");
        assert_eq!(range.len(), shape.iter().product::<usize>(), "{name}");
        end = range.end;
        let fan_in = if name.starts_with('0') { 60.0_f32 } else { 64.0 };
        let largest = net.params()[range].iter().map(|w| w.abs()).fold(0.0, f32::max);
        let full = if shape.len() == 2 { 0.95 } else { 0.3 }; // two biases only in the last layer
        assert!(largest <= fan_in.sqrt().recip() && largest > full / fan_in.sqrt(), "{name}: {largest}");
    }
    assert_eq!(end, net.params().len());
}

/// This test fails if a clamp turns NaN into a number.
#[test]
fn a_nan_is_seen_at_the_output() {
    for net in nets() {
        let mut ws = net.workspace(2);
        let mut x = normals(2 * net.inputs(), 13);
        x[0] = f32::NAN;
        ws.load(&x);
        let y = net.forward(&mut ws);
        assert!(y[..net.outputs()].iter().all(|y| y.is_nan()), "{:?}", net.sizes());
        assert!(y[net.outputs()..].iter().all(|y| y.is_finite()), "and only in its row");
    }
}
