{{/* What follows the cluster's version. */}}

{{/* API version of KubeSchedulerConfiguration: the newest that this kube-scheduler reads. */}}
{{- define "gpushare.schedulerConfigVersion" -}}
{{- $version := include "gpushare.schedulerVersion" . -}}
{{- if semverCompare ">=1.25.0-0" $version -}}
kubescheduler.config.k8s.io/v1
{{- else if semverCompare ">=1.23.0-0" $version -}}
kubescheduler.config.k8s.io/v1beta3
{{- else if semverCompare ">=1.22.0-0" $version -}}
kubescheduler.config.k8s.io/v1beta2
{{- else -}}
kubescheduler.config.k8s.io/v1beta1
{{- end -}}
{{- end -}}

{{/* Version of kube-scheduler: that of its tag where one is set, else the cluster's. */}}
{{- define "gpushare.schedulerVersion" -}}
{{- $tag := .Values.scheduler.image.tag -}}
{{- if and $tag (regexMatch "^v?[0-9]+\\.[0-9]+\\.[0-9]+" $tag) -}}
{{- regexFind "[0-9]+\\.[0-9]+\\.[0-9]+" $tag -}}
{{- else -}}
{{- regexFind "[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- end -}}
{{- end -}}

{{/*
kube-scheduler's image. A vendor's suffix (-eks-..., -gke.1, +k3s1) is not part of a released tag.
Until 1.24 releases were made to, and nodes hold them from, the older registry.
*/}}
{{- define "gpushare.schedulerImage" -}}
{{- $version := include "gpushare.schedulerVersion" . -}}
{{- $registry := semverCompare ">=1.25.0-0" $version | ternary "registry.k8s.io" "k8s.gcr.io" -}}
{{- $repository := default (printf "%s/kube-scheduler" $registry) .Values.scheduler.image.repository -}}
{{- printf "%s:%s" $repository (default (printf "v%s" $version) .Values.scheduler.image.tag) -}}
{{- end -}}

{{- define "gpushare.disruptionBudgetVersion" -}}
{{- semverCompare ">=1.21.0-0" .Capabilities.KubeVersion.Version | ternary "policy/v1" "policy/v1beta1" -}}
{{- end -}}
