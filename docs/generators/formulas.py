"""The formula and the source of every value of the objective's axes, as the page writes them.

That each value stands here, and nothing else, is checked when the page is generated.
"""

from __future__ import annotations

RATIOS = {
    "none": ("no ratio; the surrogate reads lp", "REINFORCE, Williams 1992"),
    "token": ("exp(d_t)", "1707.06347"),
    "sequence": ("exp(mean_t d_t), one value a row", "2507.18071"),
    "sequence_token": ("the same value; its gradient reaches token t through lp_t", "2507.18071"),
    "sequence_product": ("exp(sum_t d_t), one value a row", "2402.14740"),
    "geo_clipped": ("exp(mean_t d_t), each d_t cut at log_range in A's direction", "2507.20673"),
}
SURROGATES = {
    "logp": ("-A lp", "REINFORCE, Williams 1992"),
    "ratio": ("-r A", "CS336, grpo_no_clip"),
    "ppo_clip": ("-min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A)", "1707.06347, 2402.03300"),
    "cispo": ("-sg[clip(r, cap_low, cap_high)] A lp", "2506.13585"),
    "sapo": ("-(4 / tau) sigmoid(tau (r - 1)) A", "2511.20347"),
    "vespo": ("-sg[exp(lam + k log w - lam w)] A lp", "2602.10693"),
    "gmpo": ("-r A, r at the level geo_clipped", "2507.20673"),
    "dppo_tv": ("-sg[min(r, ratio_cap)] A lp where p has moved less than tv", "2602.04879"),
    "clip_cov": ("as ppo_clip; 0 on a random share of tokens of high covariance", "2505.22617"),
    "kl_cov": ("-r A, + kl_cov_coef |log r| on the tokens of highest covariance", "2505.22617"),
    "dro": ("-(A lp - dro_beta / 2 log^2 r)", "2405.19107"),
}
REDUCTIONS = {
    "seq_mean_token_mean": ("1 / (B n_i)", "2402.03300"),
    "token_mean": ("1 / N", "2503.14476"),
    "local_token_mean": ("1 / (M n), over each of M microbatches", "huggingface/trl, bnpo"),
    "seq_mean_token_sum_norm": ("1 / (B L)", "2503.20783"),
    "seq_mean_token_sum": ("1 / B", "2602.05261"),
    "prompt_mean": ("1 / (P g), g tokens in the group", "SkyRL"),
}
ADVANTAGES = {
    "raw": ("R", "REINFORCE, Williams 1992"),
    "group": ("(R - mean) / (std + eps)", "2402.03300"),
    "group_mean": ("R - mean", "2503.20783"),
    "group_mean_batch_std": ("(R - mean) / (std of the step + eps)", "2508.08221"),
    "rloo": ("R - mean of the others", "2402.14740"),
    "reinforce_pp": ("discounted return per token, whitened over the step", "2501.03262"),
    "reinforce_pp_baseline": ("R - mean, whitened over the step's tokens", "2501.03262"),
    "remax": ("R - R(greedy answer)", "2310.10505"),
    "opo": ("R - sum(n R) / sum(n)", "2505.23585"),
    "maxrl": ("(R - mean) / mean, 0 where the mean is 0", "2602.02710"),
    "pass_k": ("best row: (best - second) / (std + eps); others 0", "2503.19595"),
    "gpg": ("(R - mean) x rows / rows with R != 0 / gpg_norm", "2504.02546"),
    "gdpo": ("each reward normalised in its group, added, whitened", "2601.05242"),
    "rae": ("R - running average of the role", "2506.24119"),
}
CORRECTIONS = {
    "none": ("1", ""),
    "tis_token": ("min(rho_t, cap)", "truncated importance sampling"),
    "icepop": ("rho_t inside [low, high], else 0", "IcePop"),
    "seq_product_truncate": ("min(prod_t rho_t, cap), for the row", "huggingface/trl"),
    "seq_product_mask": ("prod_t rho_t, 0 above cap", "huggingface/trl"),
    "geometric_truncate": ("min(exp(mean_t log rho_t), cap)", "volcengine/verl"),
    "geometric_mask": ("1 where exp(mean_t log rho_t) is in [low, high]", "volcengine/verl"),
    "k3_reject": ("1 where mean_t k3(rho_t) <= threshold", "volcengine/verl"),
    "off_policy_seq_mask": ("0 where A < 0 and mean_t(mu - lp) > threshold", "2512.02556"),
}
KL = {
    "k1": ("x", "1: in the loss its expectation is 0"),
    "abs": ("|x|", "sign(x)"),
    "k2": ("x^2 / 2", "x, unbiased"),
    "k3": ("exp(-x) + x - 1", "1 - exp(-x), biased"),
    "k1_plus": ("x", "x, that of k2"),
    "k3_plus": ("exp(-x) + x - 1", "x, that of k2"),
    "k3_is": ("r (exp(-x) + x - 1)", "through r too, unbiased"),
}
SHAPINGS = {
    "no_reshape": "p",
    "ratio": "p / (p + gamma)",
    "square_root": "sqrt(p)",
    "pow": "p^off_shaping_power",
    "logp": "off_shaping_weight lp",
    "p_logp": "p + off_shaping_weight lp",
}
PREFERENCES = {
    "sigmoid": ("-logsig(bD)", "2305.18290"),
    "cdpo": ("-(1-e) logsig(bD) - e logsig(-bD)", "conservative DPO"),
    "robust": ("[-(1-e) logsig(bD) + e logsig(-bD)] / (1-2e)", "2403.00409"),
    "hinge": ("relu(1 - bD)", "2305.10425"),
    "ipo": ("(c/n_c - j/n_j - 1/(2b))^2", "2310.12036"),
    "sigmoid_norm": ("-logsig(b (c/n_c - j/n_j))", "length-normalised"),
    "exo_pair": ("KL of (sig(bD), sig(-bD)) to (1-e, e)", "2402.00856"),
    "nca_pair": ("-logsig(bc) - logsig(-bc)/2 - logsig(-bj)/2", "2402.05369"),
    "bco_pair": ("-logsig(bc) - logsig(-bj)", "2404.04656"),
    "sppo_hard": ("(c - 1/(2b))^2 + (j + 1/(2b))^2", "2405.00675"),
    "apo_zero": ("1 - sig(bc) + sig(bj)", "2408.06266"),
    "apo_down": ("sig(bc) + 1 - sig(bD)", "2408.06266"),
    "aot": ("cdpo on sorted margins of the step", "2406.05882"),
    "aot_unpaired": ("cdpo on sorted log-ratios of the step", "2406.05882"),
    "discopop": ("-logsig(bD) and exp(-bD), blended by sig(bD / 0.05)", "2406.08414"),
    "sft": ("nll of the chosen response, a term beside others", "RPO"),
}
