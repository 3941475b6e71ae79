//! The data and settings that all networks share during the update of one epoch.

use epo_core::{Purpose, Stream};
use rayon::prelude::*;

use crate::{Batch, Epoch, UpdateConfig};

/// The batch, the settings and the order of the samples in every pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateContext<'a> {
    /// Samples of the epoch.
    pub(crate) batch: &'a Batch<'a>,
    /// Settings of the update.
    pub(crate) config: &'a UpdateConfig,
    /// Position of the epoch in its run.
    pub(crate) epoch: Epoch,
    orders: &'a [Vec<u32>],
}

impl<'a> UpdateContext<'a> {
    /// The minibatches of a pass, as indices of samples. Every network sees the same ones in the same order.
    pub(crate) fn minibatches(&self, pass: usize) -> std::slice::Chunks<'a, u32> {
        self.orders[pass].chunks(self.config.minibatch)
    }
}

/// Buffers for the order of the samples in each pass, reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shuffles {
    orders: Vec<Vec<u32>>,
}

impl Shuffles {
    /// Shuffles the samples for every pass. The order is a pure function of seed, epoch and pass.
    pub(crate) fn context<'a>(
        &'a mut self,
        batch: &'a Batch<'a>,
        config: &'a UpdateConfig,
        epoch: Epoch,
    ) -> UpdateContext<'a> {
        shuffle(&mut self.orders, config.passes.max(1), batch.len(), epoch);
        UpdateContext { batch, config, epoch, orders: &self.orders }
    }
}

fn shuffle(orders: &mut Vec<Vec<u32>>, passes: usize, samples: usize, epoch: Epoch) {
    orders.resize_with(passes, Vec::new);
    orders.par_iter_mut().enumerate().for_each(|(pass, order)| {
        order.clear();
        order.extend(0..samples as u32);
        Stream::at(epoch.seed, Purpose::Shuffle, epoch.index, (pass as u64) << 32).shuffle(order);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_and_epoch_has_an_order_of_its_own() {
        let order = |index, pass| {
            let mut orders = Vec::new();
            shuffle(&mut orders, 2, 50, Epoch { index, total: 9, seed: 1 });
            orders.swap_remove(pass)
        };
        let (a, b, c) = (order(0, 0), order(0, 1), order(1, 0));
        assert!(a != b && a != c && b != c && a == order(0, 0));
        let mut sorted = a;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
