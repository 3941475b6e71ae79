//! Test: AVX2 with FMA and AVX-512 compute the same bits, on every machine.

use epo_core::{Purpose, Stream};
use pulp::Arch;
use pulp::x86::{V3, V4};

use crate::adam::add_l2_and_clip_with;
use crate::{Adam, Mlp, narrow};

/// The instruction sets with a fused multiply-add that this processor has.
fn fused() -> Vec<Arch> {
    let avx2 = V3::try_new().map(Arch::V3);
    let avx512 = V4::try_new().map(Arch::V4);
    avx2.into_iter().chain(avx512).collect()
}

/// FNV-1a hash of the bits of numbers.
struct Hash(u64);

impl Hash {
    fn add(&mut self, numbers: &[f32]) {
        for byte in numbers.iter().flat_map(|x| x.to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Hash of everything that the kernels compute in twenty steps of a regression with an L2 penalty.
fn train(arch: Arch, sizes: &[usize], rows: usize) -> u64 {
    let mut stream = Stream::new(1, Purpose::Random, 0);
    let mut net = Mlp::with_arch(sizes, 0, &mut stream, arch);
    let mut uniform =
        |n: usize| -> Vec<f32> { (0..n).map(|_| (4.0 * stream.uniform() - 2.0) as f32).collect() };
    let (x, target) = (uniform(rows * net.inputs()), uniform(rows * net.outputs()));
    let direction = uniform(net.params().len());
    let (mut ws, mut adam) = (net.workspace(rows), Adam::new(net.params().len()));
    let (mut grad, mut dout) = (vec![0.0; net.params().len()], vec![0.0; target.len()]);
    let (mut jv, mut predicted, mut one) = (dout.clone(), dout.clone(), vec![0.0; net.outputs()]);
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    ws.load(&x);
    for _ in 0..20 {
        let y = net.forward(&mut ws);
        hash.add(y);
        for ((d, y), target) in dout.iter_mut().zip(y).zip(&target) {
            *d = narrow(f64::from(y - target) / rows as f64);
        }
        net.jvp(&mut ws, &direction, &mut jv);
        net.backward(&mut ws, &dout, &mut grad);
        hash.add(&grad);
        let (norm, penalty) = add_l2_and_clip_with(arch, &mut grad, net.params(), 1e-3, 0.05);
        net.update(|p| adam.step_with(arch, p, &grad, 1e-2));
        net.predict(&x, &mut ws, &mut predicted);
        net.forward_one(&x[..net.inputs()], &mut ws, &mut one);
        for numbers in [&grad, &jv, &predicted, &one, adam.m(), adam.v(), &[norm as f32, penalty as f32]] {
            hash.add(numbers);
        }
    }
    hash.add(net.params());
    hash.0
}

/// This test fails if the order of a sum depends on the width of a vector or on the compiler. It also fails if only one
/// instruction set fuses a multiply-add.
#[test]
fn every_fused_instruction_set_computes_the_pinned_bits() {
    // sizes below, at and between multiples of the vectors; one chunk of 64 rows and several
    let cases: [(&[usize], usize, u64); 4] = [
        (&[60, 64, 64, 1], 64, 0xdbba_7149_c534_1c07),
        (&[17, 64, 64, 6], 50, 0x7df1_754a_4db7_85bf),
        (&[13, 37, 20, 3], 150, 0x3e01_e9a4_3d8c_0277),
        (&[376, 24, 17], 65, 0xf80a_da84_4df7_cf5c),
    ];
    for arch in fused() {
        for (sizes, rows, want) in cases {
            let got = train(arch, sizes, rows);
            assert_eq!(got, want, "{arch:?}, {sizes:?}, {rows} rows: {got:#018x}");
        }
    }
}
