use super::*;
use pulp::{Arch, WithSimd};

struct Tanh<'a>(&'a mut [f32]);

impl WithSimd for Tanh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        tanh_in_place(simd, self.0);
    }
}

/// This test fails if a coefficient changes, if the range is narrower, if a clamp is missing, or if a NaN becomes a
/// number.
#[test]
fn tanh_is_odd_accurate_to_4e_7_and_at_most_one() {
    for arch in [Arch::new(), Arch::Scalar] {
        // 2²⁰ points on ±12 and some special values, a multiple of 16: only whole vectors are computed
        let n = 1 << 20;
        let mut x: Vec<f32> = (0..n).map(|i| (i as f32 / (n - 1) as f32 - 0.5) * 24.0).collect();
        x.extend([0.0, -0.0, 1e-30, 9.0, 40.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
        x.extend([0.0; 8]);
        let (mut y, mut minus) = (x.clone(), x.iter().map(|x| -x).collect::<Vec<_>>());
        arch.dispatch(Tanh(&mut y));
        arch.dispatch(Tanh(&mut minus));
        let (x, nan) = (&x[..n + 7], y[n + 7]);
        let mut worst = 0.0_f64;
        for (i, x) in x.iter().enumerate() {
            worst = worst.max((f64::from(y[i]) - f64::from(*x).tanh()).abs());
            assert_eq!(minus[i], -y[i], "odd at {x}");
            assert!(y[i].abs() <= 1.0 && (x.abs() < 9.0 || y[i].abs() == 1.0), "tanh({x}) = {}", y[i]);
        }
        assert!(worst < 4e-7, "largest error {worst:e}");
        assert!(nan.is_nan(), "tanh(NaN) = {nan}");
    }
}

/// `[tanh(x), x (1 − 0²), x · 1]` for one vector of equal entries: a hidden unit, a δ and a gradient.
struct Results(f32);

impl WithSimd for Results {
    type Output = [f32; 3];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f32; 3] {
        let row = [self.0; 16];
        let [mut h, mut delta, mut gradient] = [row; 3];
        tanh_in_place(simd, &mut h);
        times_slope(simd, &[0.0; 16], &mut delta);
        outer_product(simd, &[1.0], 1, &row, 16, 1, 16, &mut gradient);
        [h[0], delta[0], gradient[0]]
    }
}

/// This test fails if one of the three results is not set to zero, or if its threshold is larger.
#[test]
fn tiny_results_become_zero() {
    for arch in [Arch::new(), Arch::Scalar] {
        for x in [TINY / 2.0, -TINY / 2.0] {
            assert_eq!(arch.dispatch(Results(x)), [0.0; 3], "{arch:?}");
            assert_eq!(
                arch.dispatch(Results(4.0 * x)),
                [4.0 * x * 0.999_999_9, 4.0 * x, 4.0 * x],
                "{arch:?}"
            );
        }
    }
}

#[test]
fn rows_are_padded_and_transposed() {
    for (rows, n) in [(1, 1), (7, 3), (8, 8), (17, 9), (64, 2)] {
        let w: Vec<f32> = (0..rows * n).map(|i| i as f32).collect();
        let (ld, ldt) = (n + 3, rows + 5);
        let (mut wide, mut turned) = (vec![-1.0; rows * ld], vec![-1.0; n * ldt]);
        pad_rows(&w, n, &mut wide, ld);
        transpose(&w, n, &mut turned, ldt);
        for (i, j) in (0..rows).flat_map(|i| (0..ld).map(move |j| (i, j))) {
            assert_eq!(wide[i * ld + j], if j < n { w[i * n + j] } else { -1.0 }, "{rows} × {n}");
        }
        for (j, i) in (0..n).flat_map(|j| (0..ldt).map(move |i| (j, i))) {
            assert_eq!(turned[j * ldt + i], if i < rows { w[i * n + j] } else { -1.0 }, "{rows} × {n}");
        }
    }
}

/// The result of `outer_product` and of `outer_product_narrow` for `A` (m × rows) and `D` (m × n) of stride 80.
struct Outer<'a> {
    a: &'a [f32],
    d: &'a [f32],
    rows: usize,
    n: usize,
}

impl WithSimd for Outer<'_> {
    type Output = [Vec<f32>; 2];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [Vec<f32>; 2] {
        let Self { a, d, rows, n } = self;
        let [mut wide, mut narrow, mut scratch] = [(); 3].map(|()| vec![f32::NAN; rows * n]);
        outer_product(simd, a, 80, d, 80, rows, n, &mut wide);
        outer_product_narrow(simd, a, 80, d, 80, rows, n, &mut narrow, &mut scratch);
        [wide, narrow]
    }
}

/// This test fails if a column of the transpose is at the wrong position, or if a sum has another order.
#[test]
fn a_narrow_outer_product_has_the_bits_of_a_wide_one() {
    let x = |i: usize| ((i * 7919) % 1009) as f32 / 500.0 - 1.0;
    let (a, d): (Vec<f32>, Vec<f32>) = (0..5 * 80).map(|i| (x(i), x(3 * i + 1))).unzip();
    for arch in [Arch::new(), Arch::Scalar] {
        for (rows, n) in [(1, 1), (65, 1), (65, 2), (9, 3), (80, 7)] {
            let [wide, narrow] = arch.dispatch(Outer { a: &a, d: &d, rows, n });
            assert_eq!(wide, narrow, "{rows} × {n}");
            let want: f64 =
                (0..5).map(|m| f64::from(a[m * 80 + rows - 1]) * f64::from(d[m * 80 + n - 1])).sum();
            assert!((f64::from(wide[rows * n - 1]) - want).abs() < 1e-6, "{rows} × {n}");
        }
    }
}

#[test]
fn tiles_are_even_and_cover_all_rows() {
    for rows in 0..200 {
        let sizes: Vec<usize> = even_tiles(rows).collect();
        assert_eq!(sizes.iter().sum::<usize>(), rows);
        assert_eq!(sizes.len(), rows.div_ceil(TILE_ROWS), "{rows}: no more tiles than needed");
        assert!(sizes.iter().all(|&s| s <= TILE_ROWS && s + 1 >= sizes[0]), "{rows}: {sizes:?}");
    }
}
