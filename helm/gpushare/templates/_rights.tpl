{{/* Rights that several accounts have. */}}

{{/*
Which GPUs are withdrawn by ConfigMap unhealthy-gpu-<node>, in kube-system by contract; names cannot be
limited by a prefix: (list root "dashboard").
*/}}
{{- define "gpushare.listedGpus" -}}
{{- $root := index . 0 -}}
{{- $account := include "gpushare.name" . -}}
{{- $name := printf "%s-listed-gpus" $account -}}
{{- $labels := include "gpushare.labels" . -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: kube-system
  labels:
    {{- $labels | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: kube-system
  labels:
    {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end -}}
