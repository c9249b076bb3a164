//! Requests that ask the controller for one thing after the other, such as the creation of many topics: some at a time.

use std::collections::VecDeque;

/// Most wishes of one request that are with the controller at a time.
const AT_ONCE_MAX: usize = 16;

/// Does all of it, begun in order and some at a time; what each came to, in the same order.
pub(super) async fn several<R, F>(wishes: impl Iterator<Item = F>) -> Vec<R>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let (mut done, mut under_way) = (Vec::new(), VecDeque::new());
    for wish in wishes {
        if under_way.len() == AT_ONCE_MAX
            && let Some(oldest) = under_way.pop_front()
        {
            done.push(ended(oldest).await);
        }
        under_way.push_back(tokio::spawn(wish));
    }
    for wish in under_way {
        done.push(ended(wish).await);
    }
    done
}

async fn ended<R>(wish: tokio::task::JoinHandle<R>) -> R {
    match wish.await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn results_come_in_order_and_no_more_than_some_are_under_way() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let wish = |number: usize| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..number % 7 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                number
            }
        };
        assert_eq!(several((0..100).map(wish)).await, (0..100).collect::<Vec<_>>());
        assert!((2..=AT_ONCE_MAX).contains(&most.load(Ordering::SeqCst)));
        assert!(several((0..0).map(wish)).await.is_empty());
    }
}
